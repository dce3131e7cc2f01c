"""Texts of every character set that a server has, beside the server's own conversion to UTF-8."""

from __future__ import annotations

import pytest

from streaming.source.binlog.format.charsets import BINARY, CODECS, UTF_8, text_of
from tests.services.database_server import DatabaseServer
from tests.services.second_editions import BOTH_FIRST

pytestmark = pytest.mark.mariadb

WITHOUT_CODEC = {"armscii8", "dec8", "eucjpms", "geostd8", "keybcs2", "swe7"}


@pytest.fixture(params=BOTH_FIRST, ids=lambda edition: edition.name, scope="module")
def server(request: pytest.FixtureRequest):
    with DatabaseServer(request.param) as running:
        yield running


def test_a_text_is_decoded_as_the_server_does(server: DatabaseServer):
    """Every byte of the character sets of single bytes, and every pair of bytes that the server
    takes for a character of another one."""
    sizes = dict(
        server.query("SELECT CHARACTER_SET_NAME, MAXLEN FROM information_schema.CHARACTER_SETS")
    )
    assert set(sizes) - set(CODECS) <= WITHOUT_CODEC
    for name, size in sizes.items():
        codec = CODECS.get(name, BINARY)
        if codec in (BINARY, UTF_8) or codec.startswith("utf"):
            continue
        for value, told in shown(server, name, every_value(size)).items():
            if told and not (size > 1 and UNTOLD & set(told)):
                found = text_or_none(value, codec)
                is_cut = size > 1 and (found or told).startswith(told)  # where it is no text
                assert found == told or is_cut, (name, value)


def text_or_none(value: bytes, codec: str) -> str | None:
    """None: Python lacks the character, as some rare ones of big5 and ujis: an error of the row."""
    try:
        return text_of(value, codec)
    except UnicodeDecodeError:
        return None


UNTOLD = {"?", "\ufffd"}  # the server has no character for a part of the bytes


def every_value(size: int) -> list[bytes]:
    if size == 1:
        return [bytes([byte]) for byte in range(256)]
    pairs = [bytes([a, b]) for a in range(0xA1, 0xFA, 3) for b in range(0x40, 0xFF)]
    return [bytes([byte]) for byte in range(128)] + pairs


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
