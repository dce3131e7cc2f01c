"""Characters of the servers' character sets that Python's codecs lack, or have for other bytes.

They are those of MariaDB 10.11 and 11.8 and MySQL 9.7, which agree: a test asks them for every
character. They are kept here, and not asked for at a start: a dead letter is read years later, and
without its server.
"""

# ruff: noqa: RUF001  # these characters are meant

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

_ASCII: Final = "".join(map(chr, range(0x80)))
_CONTROLS: Final = "".join(map(chr, range(0x80, 0xA0)))
# By the name of a character set of single bytes: the characters of the bytes from 0x80 on.
_UPPER: Final[Mapping[str, str]] = {
    "armscii8": (
        f"{_CONTROLS}\xa0❁§։)(»«—.՝,-՟…՜՛՞ԱաԲբԳգԴդԵեԶզԷէԸըԹթԺ"
        "ժԻիԼլԽխԾծԿկՀհՁձՂղՃճՄմՅյՆնՇշՈոՉչՊպՋջՌռՍսՎվՏտՐրՑցՒւՓփՔքՕօՖֆ’'"
    ),
    "dec8": (
        f"{_CONTROLS}\xa0¡¢£?¥?§¤©ª«????°±²³?µ¶·?¹º»¼½?¿ÀÁÂÃÄ"
        "ÅÆÇÈÉÊËÌÍÎÏ?ÑÒÓÔÕÖŒØÙÚÛÜŸ?ßàáâãäåæçèéêëìíîï?ñòóôõöœøùúûüÿ??"
    ),
    "geostd8": (
        "€?‚?„…†‡?‰?‹?????‘’“”•–—???›????\xa0¡¢£¤¥¦§¨©ª«¬\xad®¯°±²³´µ¶·¸¹º»¼½¾¿აბგდევზჱთიკლმნ"
        "ჲოპჟრსტჳუფქღყშჩცძწჭხჴჯჰჵ???????????????????????№??"
    ),
    "keybcs2": (
        "ČüéďäĎŤčěĚĹÍľĺÄÁÉžŽôöÓůÚýÖÜŠĽÝŘťáíóúňŇŮÔšřŕŔ¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙"
        "╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\xa0"
    ),
    "swe7": "?" * 0x80,
}
_SWE7: Final = str.maketrans("@[\\]^`{|}~\x7f", "ÉÄÖÅÜéäöåü?")
SINGLE_BYTES: Final[Mapping[str, tuple[str, ...]]] = {
    name: tuple((_ASCII.translate(_SWE7) if name == "swe7" else _ASCII) + upper)
    for name, upper in _UPPER.items()
}

# Python's codec that is nearest to a character set which has none of its name.
NEAREST: Final[Mapping[str, str]] = {"eucjpms": "euc_jp"}
# By codec: runs of characters, from the first one's bytes on.
_RUNS: Final[dict[str, dict[str, str]]] = {
    "big5": {"f9d6": "碁銹裏墻恒粧嫺"},
    "euc_jp": {"a1c0": "\\"},
    "eucjpms": {
        "a1c1": "～∥",
        "a1dd": "－",
        "a1f1": "￠￡",
        "a2cc": "￢",
        "8fa2b7": "～",
        "8fa2c3": "￤",
        "ada1": "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳ⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩ",
        "adc0": "㍉㌔㌢㍍㌘㌧㌃㌶㍑㍗㌍㌦㌣㌫㍊㌻㎜㎝㎞㎎㎏㏄㎡",
        "addf": "㍻〝〟№㏍℡㊤㊥㊦㊧㊨㈱㈲㈹㍾㍽㍼≒≡∫∮∑√⊥∠∟⊿∵∩∪",
        "8ff3f3": "ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹⅠⅡ",
        "8ff4a1": (
            "ⅢⅣⅤⅥⅦⅧⅨⅩ＇＂㈱№℡炻仼僴凬匇匤\ufa0e咊坙\ufa0f\ufa10增寬峵嵓\ufa11德悅愠敎昻晥"
            "\ufa12\uf929栁\ufa13\ufa14橫櫢淸淲瀨\ufa15\ufa16甁皂皞\ufa17礰\ufa18\ufa19"
            "\ufa1a\ufa1b竧\ufa1c\ufa1d綠緖\ufa1e荢\ufa1f薰\ufa20\ufa21蠇\ufa22譿賴赶"
            "\ufa23\ufa24\ufa25郞\ufa26鄕\ufa27\ufa28閒\uf9dc\ufa29霻靍靑\ufa2a\ufa2b"
            "\ufa2c馞髙魲\ufa2d黑"
        ),
    },
}
_NO_CHARACTER: Final = {"big5": ("a15a", "a1c3", "a1c5", "a1fe", "a240", "a2cc", "a2ce")}
_THREE_BYTES: Final = 0x8F  # leads a character of three bytes, of EUC
_USERS: Final = 0xE000  # the first of the characters that users define: 20 rows of 94 of EUC


@lru_cache(maxsize=8)
def own_characters(codec: str) -> Mapping[bytes, str]:
    """By their bytes, those of a character set of several bytes that are others in Python."""
    found = {bytes.fromhex(each): "\ufffd" for each in _NO_CHARACTER.get(codec, ())}
    for begin, characters in _RUNS.get(codec, {}).items():
        first, width = int(begin, 16), len(begin) // 2
        for place, each in enumerate(characters):
            found[(first + place).to_bytes(width, "big")] = each
    if codec in ("euc_jp", "eucjpms"):
        for place in range(2 * 940):
            lead = bytes([_THREE_BYTES]) if place >= 940 else b""
            row, cell = divmod(place % 940, 94)
            found[lead + bytes([0xF5 + row, 0xA1 + cell])] = chr(_USERS + place)
    return found


def decoded(value: bytes, codec: str) -> str:
    """The text in a character set of several bytes. Raises UnicodeDecodeError."""
    nearest, own = NEAREST.get(codec, codec), own_characters(codec)
    if not own or value.isascii():
        return value.decode(nearest)
    is_euc = codec in ("euc_jp", "eucjpms")
    return "".join(own.get(each) or each.decode(nearest) for each in _cut(value, is_euc=is_euc))


def _cut(value: bytes, *, is_euc: bool) -> Iterator[bytes]:
    at = 0
    while at < len(value):
        width = 1 if value[at] < 0x80 else 3 if is_euc and value[at] == _THREE_BYTES else 2
        yield value[at : at + width]
        at += width
