"""MySQL's binary JSON as text: as the server's own, and never more than its bytes."""

from __future__ import annotations

import json
import random
import struct

import pytest

from streaming.protocols.contract import DATA
from streaming.source.binlog.format.cells.json_text import BadJson, double_text, json_text
from tests.services.database_server import DatabaseServer
from tests.streaming.source.binlog.binlogs import recorded, table_of

SQL_VALUES = [
    "'null'",
    "'true'",
    "'[]'",
    "'{}'",
    "'\"\"'",
    "'[[], {}, [{}]]'",
    "'[32767, -32768, 32768, -32769, 65535, 65536, 2147483648, -2147483649]'",
    "'[9223372036854775807, -9223372036854775808, 18446744073709551615, 18446744073709551616]'",
    "'[1.0, -0.0, 0.1, 1e15, 1e16, 123456789012345680, 1e300, 1.5e-7, 1e-15, 1e-16, 5e-324]'",
    "'[123456789012345678.5, 1234567890123456.7, 100000000000000000000, 0.000001234]'",
    "'[1.7976931348623157e308, 12345678901234.5, 999999999999999.9, 2.5e15]'",
    r"""'["ü", "中😀", "\\u0000\\u001f\\u007f", "\\"\\\\/\\b\\f\\n\\r\\t", "\\u2028"]'""",
    "JSON_OBJECT('b', 1, 'a', 2, 'aa', JSON_OBJECT('ü', NULL), '', 'empty')",
    "JSON_ARRAY(CAST('12.340' AS DECIMAL(10,3)), CAST('-0.001' AS DECIMAL(3,3)))",
    "JSON_ARRAY(CAST('-99999999999999999999.5' AS DECIMAL(21,1)), CAST('0' AS DECIMAL(5,0)))",
    "JSON_ARRAY(CAST('2024-02-29' AS DATE), CAST('2024-02-29 12:34:56.789' AS DATETIME(3)))",
    "JSON_ARRAY(CAST('-838:59:59' AS TIME), CAST('00:00:00.000001' AS TIME(6)))",
    "JSON_ARRAY(CAST('-00:00:00.5' AS TIME(1)), TIMESTAMP '9999-12-31 23:59:59.999999')",
    "JSON_ARRAY(x'00ff10', CAST('abc' AS BINARY), b'101', YEAR('2024-01-01'))",
    "JSON_ARRAY(REPEAT('x', 127), REPEAT('y', 128), REPEAT('z', 20000))",
    "JSON_ARRAY(REPEAT('z', 70000), 1, -70000, 70000, 1.5, TRUE, NULL)",  # offsets of 32 bits
    "JSON_OBJECT('k', REPEAT('z', 70000), 'l', JSON_OBJECT('m', JSON_ARRAY(1, 70000)))",
]


@pytest.mark.mariadb
def test_the_text_is_that_of_the_server(mysql: DatabaseServer):
    values = [*SQL_VALUES, *(quoted(random_document(random.Random(seed))) for seed in range(200))]
    with mysql.database("d"), recorded(mysql) as found:
        mysql.execute("CREATE TABLE d.t (id INT PRIMARY KEY, j JSON)")
        with mysql.connect(charset="utf8mb4", autocommit=False) as one, one.cursor() as cursor:
            for number, value in enumerate(values):
                cursor.execute(f"INSERT INTO d.t VALUES ({number}, {value})")
            one.commit()
            cursor.execute("SELECT CAST(j AS CHAR) FROM d.t ORDER BY id")
            expected = [text for (text,) in cursor.fetchall()]
    cells = table_of(found[0], "d.t")[DATA].combine_chunks().field("j").to_pylist()
    for value, told, shown in zip(values, cells, expected, strict=True):
        assert told == shown, value[:200]


def quoted(document: object) -> str:
    text = json.dumps(document, ensure_ascii=False)
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def random_document(rng: random.Random, depth: int = 0) -> object:
    kind = rng.randrange(9 if depth < 4 else 7)
    if kind == 7:
        return [random_document(rng, depth + 1) for _ in range(rng.randrange(6))]
    if kind == 8:
        names = [f"k{rng.randrange(99)}" for _ in range(rng.randrange(6))]
        return {name: random_document(rng, depth + 1) for name in names}
    return random_scalar(rng, kind)


def random_scalar(rng: random.Random, kind: int) -> object:
    match kind:
        case 0:
            return rng.choice([None, True, False])
        case 1:
            return rng.randrange(-(1 << rng.randrange(1, 63)), 1 << rng.randrange(1, 63))
        case 2:
            return struct.unpack("<d", rng.randbytes(7) + bytes([rng.randrange(0x3C, 0x43)]))[0]
        case 3:
            return rng.uniform(-1, 1) * 10 ** rng.randrange(-20, 20)
    return "".join(rng.choices('aé中😀"\\\n ', k=rng.randrange(200)))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (1e15, "1e15"),
        (123456789012345.0, "123456789012345.0"),
        (1e-14, "0.00000000000001"),
        (1e300, "1e300"),
        (-1.5e-20, "-1.5e-20"),
    ],
)
def test_a_double_is_shown_with_the_fewest_digits(value: float, text: str):
    assert double_text(value) == text


@pytest.mark.parametrize(
    "raw",
    [
        b"\x0d",
        b"\x0c\x05ab",
        b"\x0c\xff\xff\xff\xff\xff\xff",
        b"\x02\x01\x00\xff\xff\x04\x00\x00",
        b"\x04\x03",
        b"\x0c\x01\xff",
        b"\x05\x01",
        b"\x0f\xf6\x01\x05",
        b"\x00\x01\x00\x10\x00\xff\x00\x01\x00\x04\x00\x00",
        b"\x0b" + struct.pack("<d", float("nan")),
    ],
)
def test_garbage_is_one_error(raw: bytes):
    with pytest.raises(BadJson):
        json_text(raw)


def test_values_that_hold_themselves_come_to_an_end():
    """An array of 2,000 entries, each of which is the array again: 2,000 ** 100 values."""
    count = 2000
    entries = b"".join(b"\x02" + struct.pack("<H", 0) for _ in range(count))
    head = struct.pack("<HH", count, 4 + len(entries))
    with pytest.raises(BadJson):
        json_text(b"\x02" + head + entries)


@pytest.mark.seeds(60)
def test_random_bytes_are_text_or_one_error(seed: int):
    rng = random.Random(seed)
    raw = bytearray.fromhex(rng.choice([*DOCUMENTS.values()]))
    for _ in range(rng.randrange(1, 6)):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    try:
        text = json_text(bytes(raw[: rng.randrange(len(raw) + 1)]))
    except BadJson:
        return
    assert isinstance(text, str)


# As MySQL 9.7 wrote them: the bytes, and their text.
DOCUMENTS = {
    '{"a": [1, -70000, 3.5, true, null, "u00fc", 12345678901234567890], '
    '"bc": {"c": 1e300, "d": {}}}': (
        "00020068001200010013000200021500004800616263070033000501000719000b1d000401000400000c25"
        "000a2b0090eefeff0000000000000c40057530306663d20a1feb8ca954ab02002000120001001300010"
        "00b1400001c0063649c7500883ce4377e00000400"
    ),
    '["2024-01-02", 1.50]': "0202001a000f0a000f14000a08000000000044b219f60403028132",
}


@pytest.mark.parametrize("text", DOCUMENTS)
def test_recorded_documents(text: str):
    assert json_text(bytes.fromhex(DOCUMENTS[text])) == text
