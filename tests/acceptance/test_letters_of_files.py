"""Dead letters of files: what they have is enough to replay them, also when the files are gone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from conf.sources.source_uri import parse_source_uri
from streaming.jobs.on_threads import ThreadsOfProcess
from streaming.source.storage.schema_files import read_schema_text
from tests.acceptance.letter_commands import LetterCommands
from tests.acceptance.one_process import Lives

pytestmark = pytest.mark.acceptance

BIG = 77_777_777_777  # a number that only the wider column holds
CSV = {
    "csv": "protocol=csv&include-commit-ts=true&output-old-value=true",
    "no quote": "protocol=csv&include-commit-ts=true&output-old-value=true&quote=&delimiter=%7C",
}
JSON = "protocol=canal-json&enable-tidb-extension=true"


class Folder:
    def __init__(self, at: Path, parameters: str) -> None:
        self.at = at
        self.uri = f"file://{at}?{parameters}&date-separator=none"
        self.is_json = "json" in parameters
        self._quote = "" if "quote=&" in parameters else '"'
        self._delimiter = "|" if "quote=&" in parameters else ","
        at.mkdir()

    def schema(self, ts: int, query: str, kind: int, column: str) -> None:
        told = {
            "Table": "a", "Schema": "shop", "Version": 1, "TableVersion": ts, "Query": query,
            "Type": kind, "TableColumns": [
                {"ColumnName": "id", "ColumnType": "BIGINT", "ColumnPrecision": "20",
                 "ColumnNullable": "false", "ColumnIsPk": "true"},
                {"ColumnName": "n", "ColumnType": column, "ColumnPrecision": "11"},
            ], "TableColumnsTotal": 2,
        }  # fmt: skip
        text = json.dumps(told, indent=4).encode()
        name = f"schema_{ts}_{read_schema_text(text).checksum:010}.json"
        self._write(f"shop/a/meta/{name}", text.decode())

    def rows(self, version: int, number: int, changes: Sequence[tuple[str, int, int, int]]) -> Path:
        """Each: op, commit-ts, id and n. Of a U the old row is (id, 1)."""
        lines = (self._json(*c) if self.is_json else self._csv(*c) for c in changes)
        suffix = "json" if self.is_json else "csv"
        return self._write(f"shop/a/{version}/CDC{number:06}.{suffix}", "".join(lines))

    def checkpoint(self, ts: int) -> None:
        self._write("metadata", json.dumps({"checkpoint-ts": ts}))

    def _csv(self, op: str, ts: int, id: int, n: int) -> str:
        def line(op: str, n: int, is_update: str) -> str:
            names = (f"{self._quote}{each}{self._quote}" for each in (op, "a", "shop"))
            return self._delimiter.join([*names, str(ts), is_update, str(id), str(n)]) + "\r\n"

        return line("D", 1, "true") + line("I", n, "true") if op == "U" else line(op, n, "false")

    def _json(self, op: str, ts: int, id: int, n: int) -> str:
        data = [{"id": str(id), "n": str(n)}]
        told = {
            "id": 0, "database": "shop", "table": "a", "pkNames": ["id"], "isDdl": False,
            "type": {"I": "INSERT", "U": "UPDATE", "D": "DELETE"}[op], "es": 1, "ts": 1, "sql": "",
            "sqlType": {"id": -5, "n": 4}, "mysqlType": {"id": "bigint", "n": "int"},
            "old": [{"id": str(id), "n": "1"}] if op == "U" else None, "data": data,
            "_tidb": {"commitTs": ts},
        }  # fmt: skip
        return json.dumps(told, separators=(",", ":")) + "\r\n"

    def _write(self, path: str, text: str) -> Path:
        file = self.at / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
        return file


@pytest.mark.parametrize(
    "parameters",
    [CSV["csv"], pytest.param(CSV["no quote"], marks=pytest.mark.more), JSON],
    ids=[*CSV, "json"],
)
def test_letters_of_files_are_replayed_when_the_files_are_gone(
    parameters: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = Folder(tmp_path / "cdc", parameters)
    made = "CREATE TABLE `shop`.`a` (`id` BIGINT NOT NULL PRIMARY KEY, `n` INT)"
    folder.schema(10, made, 3, "INT")
    file = folder.rows(
        10,
        1,
        [
            *(("I", 20, 1, 1), ("I", 20, 2, BIG), ("I", 20, 3, 1), ("I", 20, 4, BIG)),
            *(("U", 21, 1, 2), ("U", 21, 3, BIG)),
        ],
    )
    folder.checkpoint(30)
    lives = Lives(
        ThreadsOfProcess, None, tmp_path, source=parse_source_uri(folder.uri), quiet_s=0.2
    )
    letters = LetterCommands(capfd, lives.warehouse)
    lives.finish(target_ts=29)
    _, listed = letters("list")
    assert [(each["table"], each["reason"]) for each in listed] == [("shop.a", "cast")] * 3
    assert lives.rows("a") == [{"id": 1, "n": 2}, {"id": 3, "n": 1}]
    code, refused = letters("replay", "--all")  # nothing has mended the table
    assert (code, {each["state"] for each in refused}) == (1, {"open"})

    folder.schema(40, "ALTER TABLE `shop`.`a` MODIFY COLUMN `n` BIGINT", 12, "BIGINT")
    folder.rows(40, 1, [("I", 41, 5, BIG), ("D", 42, 4, BIG)])
    folder.checkpoint(50)
    lives.finish(target_ts=49)
    file.unlink()
    code, done = letters("replay", "--all")
    states = sorted(each["state"] for each in done)
    assert (code, states) == (0, ["replayed", "replayed"]), "the third one's row is gone since"
    rows = [{"id": 1, "n": 2}, *({"id": id, "n": BIG} for id in (2, 3, 5))]
    assert lives.rows("a") == rows
    folder.rows(40, 2, [("U", 51, 2, 7)])
    folder.checkpoint(60)
    lives.finish(target_ts=59)
    assert lives.rows("a") == [rows[0], {"id": 2, "n": 7}, *rows[2:]]
