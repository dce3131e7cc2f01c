"""Disguises the values of a message, for a recording that leaves the house. Pure.

Letters and digits of texts, JSON, binary values and spatial values are exchanged, each for another
one: equal values stay equal, and different ones different; lengths, other characters and NULLs
stay. Numbers, dates, ENUM and SET stay as they are, and so do names and DDLs. It hides values from
a reader, and is no encryption: whoever counts letters may find them again.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable
from typing import Any, Final

from streaming.protocols.compressed import text_of

_BLOCK: Final = 256  # a letter is exchanged for one that is near it in Unicode
# By the beginnings of their names.
_KEPT: Final = (
    "tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "numeric", "float", "double",
    "bit", "bool", "year", "date", "time", "enum", "set", "unsigned",
)  # fmt: skip
_UNREADABLE: Final = b"?"


def disguise(seed: int) -> Callable[[bytes], bytes]:
    """A function of a message's bytes; one ``seed``, one exchange of letters. Bytes that are no
    message come as question marks, as many as they were."""
    exchange = _Exchange(seed)

    def row(values: dict[str, Any], types: dict[str, str]) -> dict[str, Any]:
        return {
            name: value
            if value is None or types.get(name, "").lower().startswith(_KEPT)
            else str(value).translate(exchange)
            for name, value in values.items()
        }

    def message(value: bytes) -> bytes:
        try:
            found = json.loads(text_of(value))
            for side in ("data", "old"):
                if found.get(side):
                    found[side] = [row(each, found.get("mysqlType") or {}) for each in found[side]]
            return json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode()
        except (ValueError, TypeError, AttributeError):
            return _UNREADABLE * len(value)

    return message


class _Exchange(dict[int, str]):
    """For ``str.translate``: a character's number -> its substitute; made block by block."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        letters, digits = string.ascii_lowercase, string.digits
        dice = random.Random(seed)
        small, others = "".join(dice.sample(letters, 26)), "".join(dice.sample(digits, 10))
        # Large letters as the small ones: in MySQL they may be equal.
        ours, theirs = letters + letters.upper() + digits, small + small.upper() + others
        super().__init__(zip(map(ord, ours), theirs, strict=True))

    def __missing__(self, at: int) -> str:
        if at < 128:
            return chr(at)
        first = at - at % _BLOCK
        letters = [chr(each) for each in range(max(first, 128), first + _BLOCK)]
        letters = [each for each in letters if each.isalpha()]
        others = random.Random(self._seed ^ first).sample(letters, len(letters))
        self.update(zip(map(ord, letters), others, strict=True))
        return self.setdefault(at, chr(at))
