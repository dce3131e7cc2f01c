"""What cannot be this changefeed's stops it with one line; what concerns no table does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conf.sources.source_uri import parse_source_uri
from coordination.errors import ConfigError
from streaming.jobs.on_threads import ThreadsOfProcess
from streaming.source.sources import open_source
from tests.acceptance.debezium_lines import DebeziumLines
from tests.acceptance.one_process import Lives
from tests.own_lines import own_text
from tests.services.delta_rows import read_rows

pytestmark = [pytest.mark.acceptance, pytest.mark.usefixtures("own_temporary_folder")]
CREATE = "CREATE TABLE `{}` (id BIGINT PRIMARY KEY, v VARCHAR(10))"


def played(sent: DebeziumLines, folder: Path, **changes: Any) -> Lives:
    settings = parse_source_uri(sent.write(folder / "sent.jsonl"))
    lives = Lives(ThreadsOfProcess, None, folder, source=settings)
    lives.finish(target_ts=open_source(settings).end_ts(), **changes)
    return lives


def ids(lives: Lives, table: str) -> list[int]:
    return sorted(row["id"] for row in read_rows(lives.warehouse / "shop" / table))


def refused(sent: DebeziumLines, folder: Path) -> str:
    settings = parse_source_uri(sent.write(folder / "sent.jsonl"))
    lives = Lives(ThreadsOfProcess, None, folder, source=settings)
    return str(lives.live(target_ts=open_source(settings).end_ts()))


def test_a_truncate_of_a_connector_empties_the_table(tmp_path: Path) -> None:
    sent = DebeziumLines()
    sent.ddl(CREATE.format("events"), "events")
    sent.row("events", "c", None, {"id": 1, "v": "a"})
    sent.row("events", "t", None, None)
    sent.row("events", "c", None, {"id": 3, "v": "c"})
    lives = played(sent, tmp_path)
    assert ids(lives, "events") == [3]
    assert lives.dead_letters() == []


def test_statements_about_no_table_are_passed_over(tmp_path: Path) -> None:
    sent = DebeziumLines(connector="mariadb")
    sent.ddl(CREATE.format("orders"), "orders")
    sent.row("orders", "c", None, {"id": 1, "v": "a"})
    sent.ddl("FLUSH TABLES")
    sent.ddl("CREATE DEFINER=`a`@`%` EVENT n ON SCHEDULE EVERY 1 DAY DO DELETE FROM orders")
    sent.ddl("SET PASSWORD FOR 'app'@'%'='*0123456789'")
    sent.ddl("CREATE PROCEDURE p() BEGIN DELETE FROM orders; SELECT 1; END")
    sent.row("orders", "c", None, {"id": 2, "v": "b"})
    assert ids(played(sent, tmp_path), "orders") == [1, 2]


def test_the_key_of_messages_makes_no_table(tmp_path: Path) -> None:
    """With message.key.columns it is not the table's, and rows of one key would be one row."""
    sent = DebeziumLines()
    for n in (1, 2):
        sent.row("orders", "c", None, {"id": n, "customer": 7}, key={"customer": 7})
    assert "message.key.columns" in refused(sent, tmp_path)


def test_a_schema_file_tells_the_key(tmp_path: Path) -> None:
    sent = DebeziumLines()
    for n in (1, 2):
        sent.row("orders", "c", None, {"id": n, "customer": 7}, key={"customer": 7})
    sent.row("orders", "d", {"id": 1, "customer": 7}, None, key={"customer": 7})
    told = "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, customer BIGINT);"
    lives = played(sent, tmp_path, schema_text=told)
    assert ids(lives, "orders") == [2]


def test_two_connectors_of_one_table_are_refused(tmp_path: Path) -> None:
    one, other = DebeziumLines("s1"), DebeziumLines("s2")
    for sent in (one, other):
        sent.row("orders", "c", None, {"id": 1, "v": sent.prefix})
    one.lines += other.lines
    assert "two connectors of Debezium, s1 (" in refused(one, tmp_path)


@pytest.mark.parametrize("connector", ["postgresql", "sqlserver", "oracle", "mongodb"])
def test_another_databases_connector_is_refused(connector: str, tmp_path: Path) -> None:
    sent = DebeziumLines(connector=connector)
    sent.row("orders", "c", None, {"id": 1, "v": "a"})
    assert f"Debezium's {connector} connector" in refused(sent, tmp_path)


def test_messages_of_another_protocol_are_refused_and_can_be_read_as_their_own(
    tmp_path: Path,
) -> None:
    sent = DebeziumLines()
    sent.ddl(CREATE.format("orders"), "orders")
    for n in range(1, 6):
        sent.row("orders", "c", None, {"id": n, "v": "a"})
    right = sent.write(tmp_path / "sent.jsonl")
    for wrong in ("maxwell", "canal-json"):
        settings = parse_source_uri(right.replace("debezium", wrong))
        lives = Lives(ThreadsOfProcess, None, tmp_path / wrong, source=settings)
        error = lives.live(target_ts=open_source(settings).end_ts())
        assert isinstance(error, ConfigError)
        assert "They look like debezium: set protocol=debezium in --source-uri" in str(error)
        assert lives.dead_letters() == []
        settings = parse_source_uri(right)
        lives.finish(source=settings, target_ts=open_source(settings).end_ts())
        assert ids(lives, "orders") == [1, 2, 3, 4, 5]


def test_garbage_before_good_messages_is_a_letter(tmp_path: Path) -> None:
    sent = DebeziumLines()
    for _ in range(6):
        sent.garbage("orders")
    sent.ddl(CREATE.format("orders"), "orders")
    sent.row("orders", "c", None, {"id": 1, "v": "a"})
    lives = played(sent, tmp_path)
    assert ids(lives, "orders") == [1]
    assert len(lives.dead_letters()) == 6


@pytest.mark.parametrize("is_second", [True, False])
def test_a_second_snapshot_of_a_connector_is_told(
    is_second: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was deleted in between stays, and nothing but a comparison finds it."""
    sent = DebeziumLines()
    for ids_there in ((1, 2), (1,))[: 1 + is_second]:
        sent.ddl("DROP TABLE IF EXISTS `shop`.`orders`", "orders", snapshot="true")
        sent.ddl(CREATE.format("orders"), "orders", snapshot="true")
        for each in ids_there:
            sent.row("orders", "r", None, {"id": each, "v": "a"})
    assert ids(played(sent, tmp_path), "orders") == [1, 2]
    told = "its connector has copied table shop.orders a second time: rows that were deleted"
    assert (told in own_text(caplog)) == is_second
