"""The copy of a TiDB as of one TSO, from a stand-in (``tests/services/tidb_front.py``)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conf.load import load_settings
from conf.settings import Changefeed, FilterSettings
from conf.sources.binlog_uri import BinlogSettings
from conf.sources.source_uri import parse_source_uri
from coordination.errors import ConfigError, Stop, TidelakeError
from coordination.model import TSO_LOGICAL_BITS, TableName
from sinks.control.warehouse import ControlTables
from streaming.changefeed.preflight import check_changefeed
from streaming.operations.cluster import _refuse_to_copy
from streaming.operations.diff.comparison import DiffLimits
from streaming.operations.diff.databases import compare_with_database
from streaming.operations.diff.findings import DiffReport
from streaming.operations.orders.reloads import order_reload
from streaming.owner.start_point import first_row
from streaming.source.sources import open_source
from streaming.spans.copies.tidb_copy import TidbCopy
from tests.own_lines import own_text
from tests.services.database_server import DatabaseServer
from tests.services.delta_rows import read_rows
from tests.services.tidb_front import TidbFront

pytestmark = pytest.mark.mariadb

NAME = "tidb_copy"
MINUTE = 60_000 << TSO_LOGICAL_BITS


@pytest.fixture
def server(mariadb: DatabaseServer) -> Iterator[DatabaseServer]:
    with mariadb.database(NAME):
        mariadb.execute(
            f"CREATE TABLE {NAME}.orders (id BIGINT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(20),"
            " price FLOAT, at TIMESTAMP(3), doc JSON)",
            f"CREATE TABLE {NAME}.events (what VARCHAR(20))",
            f"CREATE TABLE {NAME}.pairs (a VARCHAR(9), b INT, PRIMARY KEY (a, b))",
            f"CREATE TABLE {NAME}.keyless (a INT)",
        )
        rows = [(n + 1, f"v{n}", 0.1, "2024-01-01 10:00:00.5", '{"n": 1}') for n in range(1_000)]
        mariadb.insert(f"{NAME}.orders", rows)
        mariadb.insert(f"{NAME}.events", [("a",), ("a",), ("b",)])
        mariadb.insert(f"{NAME}.pairs", [(f"p{n % 7}", n) for n in range(300)])
        yield mariadb


@pytest.fixture
def tidb(server: DatabaseServer) -> Iterator[TidbFront]:
    with TidbFront(server, types={"doc": "json"}) as front:
        yield front
    assert front.wrong == []


def changefeed_of(tidb: TidbFront, tmp_path: Path, **parameters: object) -> Changefeed:
    file = tmp_path / "changefeed.toml"
    file.write_text(
        "on-no-key = 'leave-out'\n"
        f"[filter]\nrules = ['{NAME}.*']\n[sink]\nprotocol = 'canal-json'\n"
        f"[[sink.tables]]\nmatcher = ['{NAME}.events']\nwrite-mode = 'append'\n"
        "[sink.kafka-config]\npartition-num = 3\n"
    )
    more = "".join(f"&{name.replace('_', '-')}={value}" for name, value in parameters.items())
    arguments: dict[str, Any] = {
        "source-uri": f"tidb://root@127.0.0.1:{tidb.port}/?chunk-rows=100{more}",
        "sink-uri": f"delta://{tmp_path / 'lake'}",
        "changefeed-id": "shop",
    }
    return load_settings(config=file, environment={}, arguments=arguments).changefeed


def copied(changefeed: Changefeed, tmp_path: Path, **given: Any) -> int:
    copy = TidbCopy(changefeed, tmp_path / "staging", **given)
    copy.run()
    assert copy.copied_ts is not None
    return copy.copied_ts


def rows(tmp_path: Path, table: str) -> list[dict[str, Any]]:
    return read_rows(tmp_path / "lake" / NAME / table)


def test_all_tables_of_the_filter_are_there_as_of_one_tso(tidb: TidbFront, tmp_path: Path) -> None:
    changefeed = changefeed_of(tidb, tmp_path)
    check_changefeed(changefeed)
    before = tidb.now()
    ts = copied(changefeed, tmp_path)
    assert before < ts < tidb.now()
    assert {at for at, _ in tidb.reads} == {ts}
    assert len(tidb.reads) > 20  # chunks
    assert sorted(row["id"] for row in rows(tmp_path, "orders")) == list(range(1, 1_001))
    assert rows(tmp_path, "orders")[0]["doc"] == '{"n": 1}'
    assert sorted(row["what"] for row in rows(tmp_path, "events")) == ["a", "a", "b"]
    assert len(rows(tmp_path, "pairs")) == 300
    assert not (tmp_path / "lake" / NAME / "keyless").exists()
    assert not (tmp_path / "staging").exists()
    tables = ControlTables.of(changefeed.sink)
    row = tables.changefeeds.read("shop")
    assert row is not None
    assert row.start_ts == row.checkpoint_ts == row.resolved_ts == row.loaded_ts == ts
    assert (row.term, row.source_positions, row.has_begun) == (0, {}, True)
    progress = tables.progress.read("shop")
    names = {TableName(NAME, each) for each in ("orders", "events", "pairs")}
    keyless = progress.pop(TableName(NAME, "keyless"))
    assert (keyless.state, keyless.delta_version) == ("warning", None)
    assert "rows of before" in (keyless.lacks or "")
    assert progress.keys() == names
    assert {(each.checkpoint_ts, each.identity_ts) for each in progress.values()} == {(ts, ts)}
    snapshot = tables.snapshots.latest("shop")
    assert snapshot is not None
    assert snapshot.primary_ts == ts
    assert snapshot.tables == {str(each): progress[each].delta_version for each in names}


def test_a_copy_is_made_once(tidb: TidbFront, tmp_path: Path) -> None:
    ts = copied(changefeed_of(tidb, tmp_path), tmp_path)
    read = len(tidb.reads)
    assert copied(changefeed_of(tidb, tmp_path), tmp_path) == ts
    assert len(tidb.reads) == read


def test_a_tso_may_be_given(tidb: TidbFront, tmp_path: Path) -> None:
    given = tidb.now() - MINUTE
    assert copied(changefeed_of(tidb, tmp_path, snapshot_ts=given), tmp_path) == given
    assert {ts for ts, _ in tidb.reads} == {given}


def test_a_tso_ahead_is_refused(tidb: TidbFront, tmp_path: Path) -> None:
    ahead = changefeed_of(tidb, tmp_path, snapshot_ts=tidb.now() + MINUTE)
    with pytest.raises(ConfigError, match="is of the past, or the present"):
        check_changefeed(ahead)


def test_a_tso_that_gc_has_passed_is_refused(tidb: TidbFront, tmp_path: Path) -> None:
    given = tidb.now() - 20 * MINUTE
    tidb.safe_ts = given + 10 * MINUTE
    said = r"cannot be read any more.*older than GC safe point.*SET GLOBAL tidb_gc_life_time"
    with pytest.raises(ConfigError, match=said):
        copied(changefeed_of(tidb, tmp_path, snapshot_ts=given), tmp_path)


def stopped_midway(changefeed: Changefeed, tidb: TidbFront, tmp_path: Path) -> int:
    """The TSO of a copy that was stopped after some chunks."""
    seen: list[object] = []

    def is_stopped() -> bool:
        seen.append(0)
        return len(seen) > 4

    with pytest.raises(Stop):
        copied(changefeed, tmp_path, is_stopped=is_stopped)
    ((ts),) = {ts for ts, _ in tidb.reads}
    return ts


def test_a_copy_that_was_stopped_goes_on_at_its_tso(tidb: TidbFront, tmp_path: Path) -> None:
    ts = stopped_midway(changefeed_of(tidb, tmp_path), tidb, tmp_path)
    before = {statement for _, statement in tidb.reads}
    tidb.reads.clear()
    assert copied(changefeed_of(tidb, tmp_path), tmp_path) == ts
    again = before & {statement for _, statement in tidb.reads}
    assert not [each for each in again if "`v`" in each]  # no chunk is read twice
    assert len(rows(tmp_path, "orders")) == 1_000


def test_where_gc_has_passed_meanwhile_the_copy_begins_anew(
    tidb: TidbFront, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ts = stopped_midway(changefeed_of(tidb, tmp_path), tidb, tmp_path)
    tidb.safe_ts = ts + 1
    assert copied(changefeed_of(tidb, tmp_path), tmp_path) > ts
    assert "begins anew at the present TSO" in own_text(caplog)
    assert len(rows(tmp_path, "orders")) == 1_000


@pytest.mark.parametrize("change", ["tso", "cluster"])
def test_a_copy_of_another_moment_begins_anew(tidb: TidbFront, tmp_path: Path, change: str) -> None:
    ts = stopped_midway(changefeed_of(tidb, tmp_path), tidb, tmp_path)
    if change == "cluster":
        tidb.cluster = "17"
    given = {"snapshot_ts": ts - 1} if change == "tso" else {}
    assert copied(changefeed_of(tidb, tmp_path, **given), tmp_path) != ts
    assert len(rows(tmp_path, "orders")) == 1_000


def test_gc_that_comes_near_is_said(
    tidb: TidbFront, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = tidb.now() - 6 * MINUTE
    copied(changefeed_of(tidb, tmp_path, snapshot_ts=given), tmp_path)
    assert "GC may delete in about 2" in own_text(caplog)
    assert "tidb_gc_life_time = '24h'" in own_text(caplog)


def test_an_account_that_may_not_read_tidbs_own_tables_copies_too(
    tidb: TidbFront, tmp_path: Path
) -> None:
    tidb.hides_gc = True
    copied(changefeed_of(tidb, tmp_path), tmp_path)
    assert len(rows(tmp_path, "orders")) == 1_000


def test_a_changefeed_that_has_begun_from_kafka_is_not_copied(
    tidb: TidbFront, tmp_path: Path
) -> None:
    changefeed = changefeed_of(tidb, tmp_path)
    row = first_row(changefeed)
    ControlTables.of(changefeed.sink).changefeeds.begin(replace(row, source_positions={"t/0": 1}))
    with pytest.raises(ConfigError, match="was started already"):
        copied(changefeed, tmp_path)


def in_kafka(changefeed: Changefeed, checkpoint_ts: int, position: int) -> None:
    """The changefeed has read so far, and ended in order."""
    table = ControlTables.of(changefeed.sink).changefeeds
    row = table.read("shop")
    assert row is not None
    read: dict[str, Any] = {"source_positions": {"t/0": position}, "checkpoint_ts": checkpoint_ts}
    read["etcd_cluster_id"] = "f1/etcd/run-shop"
    table.save(replace(row, state="stopped", **read))


def test_tables_of_a_wider_filter_join_as_of_the_present(
    tidb: TidbFront, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wide = changefeed_of(tidb, tmp_path)
    narrow = replace(wide, filter=FilterSettings(rules=(f"{NAME}.pairs",)))
    first_ts = copied(narrow, tmp_path)
    in_kafka(narrow, first_ts + 5, 7)
    with pytest.raises(ConfigError, match="as of the present: leave it out"):
        copied(changefeed_of(tidb, tmp_path, snapshot_ts=first_ts), tmp_path)
    tidb.reads.clear()
    begun_ts = stopped_midway(wide, tidb, tmp_path)
    in_kafka(narrow, first_ts + 9, 8)  # it went on, and may have read what is above `begun_ts`
    joined_ts = copied(wide, tmp_path)
    assert joined_ts > begun_ts > first_ts
    assert "it begins anew" in own_text(caplog)
    assert len(rows(tmp_path, "orders")) == 1_000
    tables = ControlTables.of(wide.sink)
    row = tables.changefeeds.read("shop")
    assert row is not None
    assert (row.term, row.checkpoint_ts, row.source_positions) == (1, first_ts + 9, {"t/0": 8})
    assert row.loaded_ts == row.max_published_ts == joined_ts
    checkpoints = {
        each.table: of.checkpoint_ts for each, of in tables.progress.read("shop").items()
    }
    assert checkpoints.pop("keyless") == row.checkpoint_ts  # it is not copied
    assert checkpoints == {"pairs": first_ts, "orders": joined_ts, "events": joined_ts}
    tidb.reads.clear()
    assert copied(wide, tmp_path) == joined_ts  # nothing is left to join
    assert tidb.reads == []


def test_a_table_is_loaded_anew_as_of_the_present(
    tidb: TidbFront, server: DatabaseServer, tmp_path: Path
) -> None:
    changefeed = changefeed_of(tidb, tmp_path)
    first_ts = copied(changefeed, tmp_path)
    in_kafka(changefeed, first_ts + 5, 7)
    order_reload(changefeed.sink, None, f"{NAME}.orders", is_dry=False)
    with pytest.raises(ConfigError, match="is not loaded anew: "):
        order_reload(changefeed.sink, None, f"{NAME}.events", is_dry=False)
    of_mysql = BinlogSettings(host=server.host, port=server.port, user="root")
    with pytest.raises(ConfigError, match="have the TSOs of a TiDB, and no other database"):
        order_reload(changefeed.sink, None, f"{NAME}.pairs", source=of_mysql, is_dry=True)
    server.execute(
        f"ALTER TABLE {NAME}.orders DROP PRIMARY KEY, MODIFY id BIGINT, ADD PRIMARY KEY (v)",
        f"DELETE FROM {NAME}.orders WHERE id > 900",
    )
    tidb.reads.clear()
    begun_ts = stopped_midway(changefeed, tidb, tmp_path)
    in_kafka(changefeed, first_ts + 9, 8)  # it went on, and may have read what is above `begun_ts`
    anew_ts = copied(changefeed, tmp_path)
    assert anew_ts > begun_ts > first_ts
    assert len(rows(tmp_path, "orders")) == 900
    assert all("`orders`" in each for _, each in tidb.reads)
    tables = ControlTables.of(changefeed.sink)
    (order,) = tables.reloads.read("shop").values()
    assert order.state == "done"
    found = {name.table: each for name, each in tables.progress.read("shop").items()}
    assert (found["orders"].checkpoint_ts, found["pairs"].checkpoint_ts) == (anew_ts, first_ts)
    server.execute(f"DROP TABLE {NAME}.orders")
    order_reload(changefeed.sink, None, f"{NAME}.orders", is_dry=False)
    assert copied(changefeed, tmp_path) == anew_ts
    (order,) = tables.reloads.read("shop").values()
    assert order.state == "given up"
    assert "the TiDB has no table that goes into tidb_copy.orders" in (order.error or "")


def test_amid_a_copy_nobody_reads_kafka(tidb: TidbFront, tmp_path: Path) -> None:
    """It would begin without the rows of before."""
    changefeed = changefeed_of(tidb, tmp_path)
    copy = TidbCopy(changefeed, tmp_path / "staging")
    copy.show("loading", 30.0)
    copy.show("stopped", None)
    kafka = parse_source_uri("kafka://127.0.0.1:1/t?protocol=canal-json&enable-tidb-extension=true")
    reading = replace(changefeed, source=kafka)
    with pytest.raises(TidelakeError, match="are being copied, or were when their copy was"):
        check_changefeed(reading)
    copy.run()
    copy.show("stopped", None)
    with pytest.raises(TidelakeError, match=r"127\.0\.0\.1:1"):  # what is wrong now is the broker
        check_changefeed(reading)


def test_a_diff_is_at_the_tso_of_a_snapshot(
    server: DatabaseServer, tidb: TidbFront, tmp_path: Path
) -> None:
    changefeed = changefeed_of(tidb, tmp_path)
    ts = copied(changefeed, tmp_path)
    tidb.reads.clear()

    def diff(*names: str) -> DiffReport:
        given = (changefeed.sink, "shop", names, changefeed.source)
        return compare_with_database(*given, limits=DiffLimits(), told=lambda *_: None)

    found = diff(f"{NAME}.orders", f"{NAME}.pairs")
    assert found.is_equal, found
    assert found.snapshot_ts == ts
    assert [each.database_rows for each in found.tables] == [1_000, 300]
    assert {at for at, _ in tidb.reads} == {ts}
    assert {str(each.name): each.result for each in diff().tables} == {
        f"{NAME}.events": "not compared",  # a change log
        f"{NAME}.orders": "equal",
        f"{NAME}.pairs": "equal",
    }
    server.execute(  # as if the copy had read something else
        f"UPDATE {NAME}.orders SET v = 'other' WHERE id = 7",
        f"DELETE FROM {NAME}.orders WHERE id = 8",
    )
    (orders,) = diff(f"{NAME}.orders").tables
    assert (orders.result, orders.differing, orders.open_rows) == ("differs", 2, 0)
    assert {(row.key["id"], row.kind) for row in orders.rows} == {(7, "changed"), (8, "extra")}
    tidb.safe_ts = ts + 1
    with pytest.raises(TidelakeError, match=r"cannot be read any more as of the snapshot.*GC"):
        diff()


@pytest.mark.parametrize("is_given", [False, True])
def test_a_row_that_is_mended_is_read_by_a_copy_anew(
    server: DatabaseServer, tidb: TidbFront, tmp_path: Path, is_given: bool
) -> None:
    given = {"snapshot_ts": tidb.now() - MINUTE} if is_given else {}
    server.execute("SET sql_mode = ''", f"INSERT INTO {NAME}.orders VALUES (5000, 'z', 0, 0, NULL)")
    strict = replace(changefeed_of(tidb, tmp_path, **given), zero_date="fail")
    staging = tmp_path / "staging"
    way_out = "give a newer snapshot-ts" if is_given else f"delete {staging}"
    for _ in range(2):
        with pytest.raises(ConfigError, match=f"orders cannot be copied: 1 of.*{way_out}, since"):
            copied(strict, tmp_path)
    server.execute(f"UPDATE {NAME}.orders SET at = '2024-01-01' WHERE id = 5000")
    if is_given:
        given = {"snapshot_ts": tidb.now() - 1}
    else:
        shutil.rmtree(staging)
    copied(replace(changefeed_of(tidb, tmp_path, **given), zero_date="fail"), tmp_path)
    assert len(rows(tmp_path, "orders")) == 1_001


def test_a_cluster_and_who_reads_messages_refuse_it(tidb: TidbFront, tmp_path: Path) -> None:
    changefeed = changefeed_of(tidb, tmp_path)
    with pytest.raises(ConfigError, match="create the changefeed with the kafka:// URI"):
        _refuse_to_copy(changefeed)
    with pytest.raises(ConfigError, match="a TiDB is copied by `tidelake run`"):
        open_source(changefeed.source)


def test_another_server_is_told_apart(server: DatabaseServer, tmp_path: Path) -> None:
    file = tmp_path / "none.toml"
    file.write_text("")
    arguments = {
        "source-uri": f"tidb://root@{server.host}:{server.port}/",
        "sink-uri": f"delta://{tmp_path / 'lake'}",
        "changefeed-id": "shop",
    }
    loaded = load_settings(config=file, environment={}, arguments=arguments)
    with pytest.raises(ConfigError, match=r"is no TiDB \(its version is .*mysql://"):
        check_changefeed(loaded.changefeed)
