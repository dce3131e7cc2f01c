"""Texts of every character set that a server has, beside the server's own conversion to UTF-8."""

from __future__ import annotations

import pytest

from streaming.source.binlog.format.charsets import (
    BINARY,
    CODECS,
    UTF_8,
    text_of,
    text_replaced,
)
from tests.services.database_server import DatabaseServer
from tests.services.second_editions import BOTH_FIRST

pytestmark = pytest.mark.mariadb


@pytest.fixture(params=BOTH_FIRST, ids=lambda edition: edition.name, scope="module")
def server(request: pytest.FixtureRequest):
    with DatabaseServer(request.param) as running:
        yield running


def test_a_text_is_decoded_as_the_server_does(server: DatabaseServer):
    """Each byte of the character sets of single bytes, and all bytes that the server takes for one
    character of another one."""
    sizes = dict(
        server.query("SELECT CHARACTER_SET_NAME, MAXLEN FROM information_schema.CHARACTER_SETS")
    )
    assert set(sizes) <= set(CODECS)
    for name, size in sizes.items():
        codec = CODECS[name]
        if codec in (BINARY, UTF_8) or codec.startswith("utf"):
            continue
        for value, told in shown(server, name, every_value(name, size)).items():
            if told and len(told) == 1 and (told != "?" or value == b"?" or size == 1):
                assert text_of(value, codec) == told, (name, value)


def test_a_text_of_many_characters():
    texts = {
        "eucjpms": "①表a\uff5e\\\ue3ac\ufa12",
        "ujis": "表\\a\ue000",
        "big5": "恒a中",
        "dec8": "Œé¤a",
    }
    raw = {
        "eucjpms": "ada1c9bd61a1c15c8ff5a18ff4c4",
        "ujis": "c9bda1c061f5a1",
        "big5": "f9da61a4a4",
        "dec8": "d7e9a861",
    }
    for name, text in texts.items():
        assert text_of(bytes.fromhex(raw[name]), CODECS[name]) == text
    with pytest.raises(UnicodeDecodeError):
        text_of(b"a\x8f", CODECS["eucjpms"])
    assert text_replaced(b"a\x8f", CODECS["eucjpms"]) == "a\ufffd"


def every_value(name: str, size: int) -> list[bytes]:
    if size == 1:
        return [bytes([byte]) for byte in range(256)]
    pairs = [bytes([a, b]) for a in range(0x81, 0xFF) for b in range(0x40, 0xFF)]
    if size == 2 and name in ("sjis", "cp932"):  # half-width kana are characters of one byte
        pairs = [each for each in pairs if not 0xA0 <= each[0] < 0xE0]
    longer = [bytes([0x8F, a, b]) for a in range(0xA1, 0xFF) for b in range(0xA1, 0xFF)]
    return [bytes([byte]) for byte in range(128)] + pairs + (longer if size == 3 else [])


def shown(server: DatabaseServer, charset: str, values: list[bytes]) -> dict[bytes, str | None]:
    found: dict[bytes, str | None] = {}
    with server.connect(charset="utf8mb4") as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        for begin in range(0, len(values), 2000):
            part = values[begin : begin + 2000]
            columns = (
                f"CONVERT(CONVERT(x'{v.hex()}' USING {charset}) USING utf8mb4)" for v in part
            )
            cursor.execute(f"SELECT {', '.join(columns)}")
            found.update(zip(part, cursor.fetchone() or (), strict=True))
    return found
