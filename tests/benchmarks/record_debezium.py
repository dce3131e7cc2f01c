"""Makes the recordings in tests/data/debezium: messages of Debezium's engine from a real MariaDB,
and the database's own answers as the truth.

    python -m tests.benchmarks.record_debezium"""

from __future__ import annotations

import gzip
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.database_peers import HERE, JARS, bring_debezium
from tests.benchmarks.measure import REPOSITORY
from tests.services.database_server import DatabaseServer

DATA: Final = REPOSITORY / "tests" / "data" / "debezium"
VARIANTS: Final = {
    "schemas": {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"},
    "source-types": {
        "key.converter.schemas.enable": "true",
        "value.converter.schemas.enable": "true",
        "column.propagate.source.type": ".*",
        "bigint.unsigned.handling.mode": "precise",
        "time.precision.mode": "connect",
        "include.schema.changes": "false",
    },
    "plain": {
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "decimal.handling.mode": "string",
    },
}
BEFORE: Final = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.types (id BIGINT PRIMARY KEY, ti TINYINT, ub BIGINT UNSIGNED, "
    "ui INT UNSIGNED, "
    "d DECIMAL(20,4), f FLOAT, db DOUBLE, b1 BIT(1), b12 BIT(12), dt DATE, tm TIME, tm6 TIME(6), "
    "dtm DATETIME, dtm3 DATETIME(3), dtm6 DATETIME(6), ts TIMESTAMP NULL, ts6 TIMESTAMP(6) NULL, "
    "y YEAR, vc VARCHAR(20) CHARACTER SET utf8mb4, tx TEXT CHARACTER SET utf8mb4, bn BINARY(4), "
    "vb VARBINARY(20), bl BLOB, en ENUM('a','it''s','z'), st SET('x','y'))",
    "CREATE TABLE shop.pairs (a INT, b VARCHAR(10), v INT DEFAULT 5, PRIMARY KEY (a, b))",
    "CREATE TABLE shop.ending (id INT PRIMARY KEY)",
    "INSERT INTO shop.types (id) VALUES (1)",
    "INSERT INTO shop.types VALUES (2, -128, 18446744073709551615, 4294967295, "
    "-1234567890123456.7891, 1.5, -2.25e100, 1, 4095, '9999-12-31', '-838:59:59', "
    "'12:34:56.789012', "
    "'2001-02-03 04:05:06', '2001-02-03 04:05:06.789', '2001-02-03 04:05:06.789012', "
    "'2001-02-03 04:05:06', '2001-02-03 04:05:06.789012', 2155, 'é漢😀', 'te\\\"xt', 'ab', "
    "X'00FF', X'FFFE00', 'it''s', 'x,y')",
    "INSERT INTO shop.pairs VALUES (1, 'one', 1), (2, 'two', NULL), (3, 'three', 3)",
)
AFTER: Final = (
    "INSERT INTO shop.types VALUES (3, 127, 0, 0, 0.0001, 0, 0, 0, 1, '1000-01-01', '00:00:00', "
    "'-00:00:00.000001', '1000-01-01 00:00:00', '1969-12-31 23:59:59.999', "
    "'9999-12-31 23:59:59.999999', '1970-01-01 00:00:01', '2038-01-19 03:14:07.999999', 1901, '', "
    "'', X'00000000', '', '', 'a', '')",
    "UPDATE shop.types SET d = 99.5, vc = 'new' WHERE id = 1",
    "UPDATE shop.pairs SET v = v + 1",
    "UPDATE shop.pairs SET b = 'zwei' WHERE a = 2",
    "DELETE FROM shop.pairs WHERE a = 3",
    "INSERT INTO shop.pairs VALUES (4, 'four', 4)",
)
DDLS: Final = (
    "ALTER TABLE shop.pairs ADD COLUMN more VARCHAR(10) DEFAULT 'x'",
    "INSERT INTO shop.pairs (a, b, v) VALUES (5, 'five', 5)",
    "UPDATE shop.pairs SET more = 'y' WHERE a = 1",
)


def select(server: DatabaseServer, table: str) -> list[dict[str, Any]]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(f"SELECT * FROM shop.{table} ORDER BY 1, 2")
        names = [each[0] for each in cursor.description]
        return [
            {
                name: value.hex()
                if isinstance(value, bytes)
                else None
                if value is None
                else str(value)
                for name, value in zip(names, row, strict=True)
            }
            for row in cursor.fetchall()
        ]


def record(variant: str, folder: Path) -> None:
    with DatabaseServer() as server:
        for text in BEFORE:
            run(server, text)
        lines = folder / f"{variant}.jsonl"
        more = [f"{name}={value}" for name, value in VARIANTS[variant].items()]
        java = ["java", "-cp", f"{JARS}/*", str(HERE / "Record.java"), str(server.port), str(lines)]
        offsets = folder / variant
        offsets.mkdir()
        engine = subprocess.Popen([*java, str(offsets), *more])
        deadline = time.monotonic() + 120
        while not lines.exists() or lines.read_text().count(".pairs") < 3:
            assert engine.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        time.sleep(3)
        for text in (*AFTER, *(() if variant == "source-types" else DDLS)):
            run(server, text)
            time.sleep(0.02)
        run(server, "INSERT INTO shop.ending VALUES (1)")
        assert engine.wait(60) == 0
        truth = {table: select(server, table) for table in ("types", "pairs")}
    with gzip.open(DATA / f"{variant}.jsonl.gz", "wb") as file:
        file.write(lines.read_bytes())
    (DATA / f"{variant}.json").write_text(json.dumps(truth, ensure_ascii=False, indent=1) + "\n")


def run(server: DatabaseServer, text: str) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute("SET NAMES utf8mb4")
        cursor.execute(text)
        connection.commit()


if __name__ == "__main__":
    assert not bring_debezium()
    DATA.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        for each in VARIANTS:
            record(each, Path(made))
