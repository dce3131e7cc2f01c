"""Small binlogs of real servers in ``tests/data/binlog``, and what is in them.

``python -m tests.streaming.source.binlog.recorded`` records them again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streaming.protocols.contract import DATA, ERROR_MESSAGE, OLD, Block, Kind, wire_types
from streaming.source.binlog.format.charsets import Charset
from streaming.source.binlog.format.table_map import table_map
from streaming.source.binlog.format.type_codes import EventType
from tests.services.database_editions import EDITIONS, Edition
from tests.services.database_server import DatabaseServer
from tests.streaming.source.binlog.binlogs import Binlog, blocks_of, charsets, recorded

FOLDER = Path(__file__).parents[3] / "data" / "binlog"
NAMES = tuple(edition.name for edition in EDITIONS)
TABLES = ("d.wide", "d.narrow", "d.odd")

CREATED = [
    "CREATE TABLE d.narrow (id INT PRIMARY KEY, name VARCHAR(30)) CHARACTER SET utf8mb4",
    """CREATE TABLE d.wide (id BIGINT UNSIGNED PRIMARY KEY, c_tiny TINYINT,
    c_small SMALLINT UNSIGNED, c_medium MEDIUMINT, c_float FLOAT, c_double DOUBLE,
    c_dec DECIMAL(30,10), c_big DECIMAL(65,30),
    c_date DATE, c_time TIME(3), c_dt DATETIME(6), c_ts TIMESTAMP(6) NULL, c_year YEAR,
    c_enum ENUM('red','grün'), c_set SET('a','b','c'), c_bit BIT(12), c_bin BINARY(5),
    c_varbin VARBINARY(40), c_char CHAR(4), c_varchar VARCHAR(300), c_text TEXT, c_json JSON,
    c_geo GEOMETRY, c_int INT)
    CHARACTER SET utf8mb4""",
    """CREATE TABLE d.odd (a VARCHAR(9) CHARACTER SET latin1, b VARCHAR(9) CHARACTER SET gbk,
    c DATETIME(2), d DATE, e TIMESTAMP(3) NULL, f TIME, g CHAR(200)) CHARACTER SET utf8mb4""",
]
WIDE = """({n}, {n} % 127 - 60, 65535 - {n}, -8000000 + {n}, {n} / 3, {n} / 7,
    -12345678901234567890.5 * {n}, 1e34 - {n}, '2024-02-2{n}', '-12:34:56.78{n}',
    '2020-01-01 00:00:00.00000{n}', '2021-01-01 12:00:00.5', 199{n}, 1 + {n} % 2, {n} % 8,
    {n} * 400, 'b{n}', x'00ff0{n}', 'ä{n}', REPEAT('ß', {n} * 20), NULLIF('text {n}', 'text 3'),
    '{{"n": {n}, "list": [1, 2.5, null, "x"]}}', ST_GeomFromText('POINT({n} 2)'), {n})"""
STATEMENTS = [
    "INSERT INTO d.narrow VALUES (1, 'one'), (2, NULL), (3, 'drei ß')",
    f"INSERT INTO d.wide VALUES {', '.join(WIDE.format(n=n) for n in range(1, 6))}",
    "UPDATE d.narrow SET id = id + 10, name = 'new' WHERE id < 3",
    "UPDATE d.wide SET c_int = c_int + 1, c_text = REPEAT('t', 90) WHERE id > 3",
    "BEGIN",
    "INSERT INTO d.odd VALUES ('é€', '中文', '0000-00-00', '2024-00-10', 0, '838:59:59', 'x')",
    "INSERT INTO d.odd VALUES ('a', 'b', '2024-01-10 01:02:03.45', NULL, NULL, NULL, NULL)",
    "UPDATE d.narrow, d.odd SET name = 'both', g = 'both' WHERE id = 3",
    "DELETE FROM d.wide WHERE id < 3",
    "COMMIT",
    "ALTER TABLE d.narrow ADD more INT DEFAULT 7",
    "INSERT INTO d.narrow VALUES (20, 'twenty', 20)",
    "DELETE FROM d.odd",
]
COMPRESSED = [  # the last of it all, since it is for the session or the server
    "INSERT INTO d.narrow VALUES (30, REPEAT('c', 30), 30), (31, 'less', 31)",
    "UPDATE d.wide SET c_text = REPEAT('z', 900)",
    "DELETE FROM d.wide",
]


def binlog(name: str) -> Binlog:
    told = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    sets = {int(number): Charset(*each) for number, each in told["charsets"].items()}
    raw = (FOLDER / f"{name}.bin").read_bytes()
    return Binlog(raw, told["is_mariadb"], sets)


def told_rows(name: str) -> list[Any]:
    """As ``shown`` has them."""
    found: list[Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["blocks"]
    return found


def shown(blocks: Sequence[Block]) -> list[Any]:
    """All that blocks say, as JSON has it."""
    told: list[Any] = json.loads(json.dumps([*map(_shown_block, blocks)], default=_text))
    return told


def _shown_block(block: Block) -> dict[str, Any]:
    head = {"kind": block.kind, "name": str(block.name), "rows": block.rows}
    if block.body is None:
        return head
    table = block.table()
    if block.kind == Kind.BAD:
        return {**head, "rows": table.to_pylist()}
    order = ("op", "commit_ts", "position", "index", DATA, OLD, ERROR_MESSAGE)
    columns = {each: table[each].to_pylist() for each in order if each in table.column_names}
    return {**head, "types": wire_types(table.schema), **columns}


def _text(cell: object) -> str:
    return cell.hex() if isinstance(cell, bytes) else str(cell)


def collations(one: Binlog) -> set[int]:
    """Those of the columns in its TABLE_MAPs."""
    maps = [each.body[8:] for each in one.each() if each.kind == EventType.TABLE_MAP]
    tables = [table_map(body, is_mariadb=one.is_mariadb) for body in maps]
    found = {column.collation for table in tables for column in table.columns}
    return {number for number in found if number is not None}


def record(edition: Edition) -> None:
    settings: dict[str, str | None] = {"innodb-buffer-pool-size": "32M"}
    with DatabaseServer(edition, settings) as server, server.database("d"):
        packing = "binlog_transaction_compression"
        if edition.is_mariadb:
            packing = "log_bin_compress"
        mode = ["SET NAMES utf8mb4", "SET sql_mode = '', time_zone = '+00:00'"]
        server.execute(*mode, *CREATED)
        with recorded(server) as found:
            server.execute(*mode, *STATEMENTS)
            server.execute(f"SET GLOBAL {packing} = 1")
            server.execute(*mode, *COMPRESSED)
        sets = charsets(server)
    one = found[0]
    used = {number: sets[number] for number in sorted(collations(one))}
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{edition.name}.bin").write_bytes(one.data)
    told = {
        "is_mariadb": one.is_mariadb,
        "charsets": {n: [each.codec, each.width] for n, each in used.items()},
        "blocks": shown(blocks_of(one, *TABLES)),
    }
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    (FOLDER / f"{edition.name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for each in EDITIONS:
        record(each)
