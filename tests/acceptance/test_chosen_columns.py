"""Which columns come to the tables, and which are masked: over a topic with DDLs, dead letters
and a rewind, and over a database that is copied and followed."""

from __future__ import annotations

import hashlib
import json
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conf.column_rules import ColumnMask, ColumnSelector
from coordination.model import TableName
from sinks.control.schemas import Schemas
from streaming.cli.main import main
from tests.acceptance.binlog_stage import CHANGEFEED, BinlogStage, end_of_log
from tests.acceptance.one_process import Lives
from tests.acceptance.small_tables import MakeLives, made, marks
from tests.own_lines import own_lines
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import read_rows
from tests.shop.canal_json import Change, Column, Ddl, Table, encode_change, encode_ddl
from tests.shop.feed import Message

SALT = "pepper-pepper"
COLUMNS = {"id": "bigint", "secret": "varchar(20)", "note": "varchar(20)", "x": "int"}
MASKS = (
    ColumnMask(matcher=("shop.*",), columns=("secret", "mail"), mask="sha256"),
    ColumnMask(matcher=("shop.a",), columns=("phone",)),
)
SELECTORS = (ColumnSelector(matcher=("shop.a",), columns=("*", "!note", "!x*")),)


def digest(text: str) -> str:
    return hashlib.sha256((SALT + text).encode()).hexdigest()


def rules(lives: Lives, **other: Any) -> dict[str, Any]:
    sink = lives.settings.changefeed.sink
    told = {"column_masks": MASKS, "column_selectors": SELECTORS, "mask_salt": "${env:SALT}"}
    return {"sink": replace(sink, **{**told, **other})}


def put(ts: int, id: int, table: Table, **values: Any) -> Message:
    row = {"id": id, "secret": f"s{id}", "note": "n", "x": 1, **values}
    row = {column.name: row.get(column.name) for column in table.columns}
    return 1, None, encode_change(Change(table=table, op="INSERT", row=row), ts, 0)


def table(**more: str) -> Table:
    columns = tuple(Column(name, kind) for name, kind in {**COLUMNS, **more}.items())
    return Table(schema="shop", name="a", columns=columns, primary_key=("id",), handle_key=("id",))


def ddl(ts: int, clauses: str) -> Message:
    return (
        0,
        None,
        encode_ddl(Ddl("shop", "a", "ALTER", f"ALTER TABLE `shop`.`a` {clauses}"), ts, 0),
    )


@pytest.mark.spark
@pytest.mark.kafka
def test_columns_are_chosen_and_masked_through_ddls_and_a_rewind(
    new_lives: MakeLives, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SALT", SALT)
    lives, first, wide = new_lives(), table(), table(mail="varchar(20)")
    bad = encode_change(
        Change(table=replace(first, columns=(Column("id", "varchar(9)"), *first.columns[1:])),
               op="INSERT", row={"id": "no key", "secret": "hidden-secret", "note": "n", "x": 1}),
        21, 0,
    )  # fmt: skip
    lives.produce([*made(10, first), put(20, 1, first), (1, None, bad)])
    lives.produce([(1, None, b'{"id":0,"database":"shop","table":"a", "hidden-secret'), *marks(30)])
    lives.finish(target_ts=25, **rules(lives))
    assert lives.rows("a") == [{"id": 1, "secret": digest("s1")}]
    letters = lives.dead_letters()
    assert len(letters) == 2
    assert {letter["value"] for letter in letters} == {None}

    lives.produce([ddl(40, "ADD COLUMN `xy` INT FIRST, DROP COLUMN `x`")])
    lives.produce([ddl(50, "ADD COLUMN `mail` VARCHAR(20) NOT NULL DEFAULT 'nobody'")])
    narrow = replace(wide, columns=tuple(c for c in wide.columns if c.name != "x"))
    lives.produce([put(60, 2, narrow, mail="m2"), *marks(70)])
    lives.finish(target_ts=65, **rules(lives))
    wanted = [
        {"id": 1, "secret": digest("s1"), "mail": digest("nobody")},
        {"id": 2, "secret": digest("s2"), "mail": digest("m2")},
    ]
    assert sorted(lives.rows("a"), key=lambda row: row["id"]) == wanted

    # Other rules are refused, and nothing is written by them.
    for other in ({"column_selectors": ()}, {"column_masks": ()}, {"mask_salt": None}):
        error = lives.live(target_ts=68, **rules(lives, **other))
        assert "table shop.a was made by other rules" in str(error)

    # Rows from before the DDLs come again, and two more DDLs; a last one waits for an operator.
    lives.produce([ddl(71, "ADD COLUMN `phone` INT DEFAULT 5, MODIFY COLUMN `secret` TEXT")])
    lives.produce([ddl(72, "MODIFY COLUMN `phone` VARCHAR(20), RENAME COLUMN `secret` TO `mail`, "
                           "RENAME COLUMN `mail` TO `secret`")])  # fmt: skip
    lives.produce([ddl(80, "RENAME COLUMN `note` TO `clear`"), *marks(90)])
    life = lives.begin(target_ts=85, overwrite_checkpoint_ts=15, **rules(lives))
    life.wait_until(lambda: any("let them say of clear" in each for each in own_lines(caplog)))
    swapped = [
        {"id": each["id"], "mail": each["secret"], "secret": each["mail"], "phone": None}
        for each in wanted
    ]
    life.wait_until(lambda: sorted(lives.rows("a"), key=lambda row: row["id"]) == swapped)
    life.stop()
    shown = Schemas(str(lives.warehouse)).of_table("shop", TableName("shop", "a"))
    assert {each["name"] for each in max(shown, key=lambda row: row.commit_ts).columns} == {
        *("xy", "id", "secret", "note", "mail", "phone"),
    }
    told = [str(each) for each in lives.dead_letters()] + own_lines(caplog)
    assert not any("hidden-secret" in each or SALT in each for each in told)


CONFIG = """
[[filter.event-filters]]
matcher = ["shop.t"]
ignore-delete-value-expr = "secret LIKE 'oth%' AND phone = 7"
ignore-update-old-value-expr = "at <= '2026-01-31 09:30:00.25' AND id >= 40"
[sink]
mask-salt = "${env:SALT}"
[[sink.column-selectors]]
matcher = ["shop.*"]
columns = ["*", "!note"]
[[sink.column-masks]]
matcher = ["shop.t"]
columns = ["secret", "at"]
mask = "sha256"
[[sink.column-masks]]
matcher = ["shop.t"]
columns = ["phone"]
"""


@pytest.mark.acceptance
@pytest.mark.mariadb
def test_a_database_is_copied_and_compared_masked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SALT", SALT)
    with DatabaseServer() as server:
        server.execute(
            "CREATE DATABASE shop CHARACTER SET utf8mb4",
            "CREATE TABLE shop.t (id INT PRIMARY KEY, secret VARCHAR(20), at DATETIME(3), "
            "phone INT, note TEXT, n INT)",
        )
        moment = "2026-01-31 09:30:00.25"
        server.insert("shop.t", [(n, f"s{n}", moment, n, "x", 1) for n in range(1, 51)])
        with BinlogStage(server, tmp_path, rules=CONFIG, mode="all") as stage:
            life = stage.start("copies", given={"SALT": SALT})
            stage.await_position(end_of_log(server), life)
            server.execute("INSERT INTO shop.t VALUES (51, 's51', NULL, 1, 'x', 1)")
            server.execute("UPDATE shop.t SET secret = 'other', n = 2 WHERE id = 7")
            server.execute("ALTER TABLE shop.t DROP COLUMN note, ADD COLUMN more INT DEFAULT 3")
            stage.await_position(end_of_log(server), life)
            found = {row["id"]: row for row in read_rows(str(stage.warehouse / "shop" / "t"))}
            at = digest("2026-01-31 09:30:00.250")
            assert found[7] == {
                "id": 7, "secret": digest("other"), "at": at, "phone": None, "n": 2, "more": 3,
            }  # fmt: skip
            assert found[51]["at"] is None
            assert found[1]["secret"] == digest("s1")
            tables = diff(stage, capsys)
            assert {name: each["result"] for name, each in tables.items()} == {"shop.t": "equal"}
            server.execute(
                "SET SESSION sql_log_bin = 0", "UPDATE shop.t SET secret = 'z' WHERE id = 9"
            )
            (row,) = diff(stage, capsys)["shop.t"]["rows"]
            assert row["cells"] == {"secret": {"table": digest("s9"), "database": digest("z")}}
            server.execute(
                "DELETE FROM shop.t WHERE id IN (7, 8)", "UPDATE shop.t SET n = 9 WHERE id > 30"
            )
            stage.await_position(end_of_log(server), life)
            found = {row["id"]: row["n"] for row in read_rows(str(stage.warehouse / "shop" / "t"))}
            assert (found[7], 8 in found) == (2, False)
            assert [found[each] for each in (30, 31, 39, 40, 50, 51)] == [1, 9, 9, 1, 1, 9]
            life.signal(signal.SIGTERM)
            assert life.await_exit() == 0, life.tail()


def diff(stage: BinlogStage, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    address = f"mysql://root@127.0.0.1:{stage.server.port}/"
    with suppress(SystemExit):
        main(
            [
                *("diff", "--source-uri", address, "--sink-uri", f"delta://{stage.warehouse}"),
                *("-c", CHANGEFEED, "--wait", "60s", "--format", "json"),
            ]
        )
    said = capsys.readouterr()
    assert said.out, said.err
    return {each["table"]: each for each in json.loads(said.out)["tables"]}
