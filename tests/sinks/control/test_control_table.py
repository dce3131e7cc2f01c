"""Every commit of a control table is a compare-and-set, and the table stays small."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from coordination.errors import TidelakeError
from coordination.model import Ownership, fence_number
from sinks.control import control_table as module
from sinks.control.changefeeds import ChangefeedRow, Changefeeds, RecordedWatermark
from sinks.control.columns import column
from sinks.control.control_table import Change, ControlTable, TableView
from sinks.control.dead_letters import DeadLetters
from sinks.control.progress import Progress, ProgressRow
from sinks.control.snapshots import SnapshotRow, Snapshots
from sinks.control.upkeep import Upkeep
from tests.own_lines import own_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([column("name", pa.string(), "whose"), column("n", pa.int64(), "how many")])
EAGER = Upkeep(every_commits=10, retention=timedelta(0), orphans_every_commits=50)


def table_in(warehouse: Path | str, **options) -> ControlTable:
    return ControlTable(str(warehouse), "counter", SCHEMA, {}, description="test", **options)


def counted(view: TableView) -> int:
    return sum(view.rows()["n"].to_pylist())


def setting(n: int, **more) -> Change:
    return Change(rows=pa.table({"name": ["a"], "n": [n]}, schema=SCHEMA), mode="overwrite", **more)


def add_one(view: TableView) -> Change:
    return setting(counted(view) + 1)


def files(table: ControlTable) -> tuple[int, int]:
    folder = Path(table.uri)
    return len(list(folder.glob("*.parquet"))), len(list((folder / "_delta_log").iterdir()))


@pytest.mark.parametrize("write", ["append", "overwrite", "merge", "identity"])
def test_delta_refuses_a_stale_handle(tmp_path: Path, write: str) -> None:
    table = table_in(tmp_path)
    table.commit(add_one, "count in")
    stale = DeltaTable(table.uri)
    table.commit(add_one, "count in")
    once = CommitProperties(max_commit_retries=0)
    rows = pa.table({"name": ["z"], "n": [1]}, schema=SCHEMA)

    def attempt() -> None:
        if write == "merge":
            merge = stale.merge(
                rows, "s.name = t.name", source_alias="s", target_alias="t", commit_properties=once
            )
            merge.when_not_matched_insert_all().execute()
        elif write == "identity":
            stale.create_write_transaction([], "append", stale.schema(), commit_properties=once)
        else:
            write_deltalake(stale, rows, mode=write, commit_properties=once)

    with pytest.raises(CommitFailedError):
        attempt()
    assert table.read(counted) == 2


def test_a_lost_compare_and_set_is_planned_again_on_what_came_between(tmp_path: Path) -> None:
    ours, other = table_in(tmp_path), table_in(tmp_path)
    ours.commit(add_one, "count in")
    seen: list[int] = []

    def plan(view: TableView) -> Change:
        if not seen:
            other.commit(add_one, "count in")
        seen.append(counted(view))
        return add_one(view)

    ours.commit(plan, "count in")
    assert seen == [1, 2]
    assert ours.read(counted) == 3


def test_what_a_plan_raises_commits_nothing(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    version = table.commit(add_one, "count in")

    def plan(_: TableView) -> Change:
        raise TidelakeError("no")

    with pytest.raises(TidelakeError, match=r"^no$"):
        table.commit(plan, "count in")
    assert DeltaTable(table.uri).version() == version


def test_no_count_is_lost_among_eight_threads(tmp_path: Path) -> None:
    def work(_: int) -> None:
        table = table_in(tmp_path, upkeep=Upkeep(every_commits=10))
        for _ in range(10):
            table.commit(add_one, "count in")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert table_in(tmp_path).read(counted) == 80


def test_one_object_is_safe_to_share_between_threads(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: table.commit(add_one, "count in"), range(40)))
    assert table.read(counted) == 40


def count_in_a_process(warehouse: str, go: multiprocessing.synchronize.Event) -> None:
    table = table_in(warehouse)
    go.wait()
    for _ in range(20):
        table.commit(add_one, "count in")


def test_two_processes_create_one_table_and_lose_no_count(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    go = spawn.Event()
    workers = [spawn.Process(target=count_in_a_process, args=(str(tmp_path), go)) for _ in range(2)]
    for worker in workers:
        worker.start()
    go.set()
    for worker in workers:
        worker.join(300)
        assert worker.exitcode == 0
    assert table_in(tmp_path).read(counted) == 40


def test_many_creators_share_one_table(tmp_path: Path) -> None:
    ready = threading.Barrier(8)

    def create(_: int) -> None:
        table = table_in(tmp_path)
        ready.wait()
        table.commit(add_one, "count in")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(create, range(8)))
    assert table_in(tmp_path).read(counted) == 8


def test_120_commits_leave_few_files_and_everything_that_counts(tmp_path: Path) -> None:
    table = table_in(tmp_path, upkeep=EAGER)
    table.commit(lambda _: Change(transactions={"tidelake/shop/term": 7}), "claim in")
    most_data, most_log = 0, 0
    for _ in range(120):
        table.commit(add_one, "count in")
        data, log = files(table)
        most_data, most_log = max(most_data, data), max(most_log, log)
    assert most_data <= 2 * EAGER.every_commits
    assert most_log <= 3 * EAGER.every_commits
    fresh = table_in(tmp_path)
    assert fresh.read(counted) == 120
    assert fresh.read(lambda view: view.transaction("tidelake/shop/term")) == 7


def test_a_reader_may_hold_an_older_version_while_upkeep_runs(tmp_path: Path) -> None:
    table = table_in(tmp_path, upkeep=Upkeep(every_commits=10))
    table.commit(add_one, "count in")
    old = DeltaTable(table.uri)
    for _ in range(25):
        table.commit(add_one, "count in")
    assert old.to_pyarrow_table()["n"].to_pylist() == [1]


def test_a_writer_that_slept_through_a_log_clean_up_goes_on(tmp_path: Path) -> None:
    sleeper, other = table_in(tmp_path, upkeep=EAGER), table_in(tmp_path, upkeep=EAGER)
    sleeper.commit(add_one, "count in")
    seen: list[int] = []

    def plan(view: TableView) -> Change:
        if not seen:
            for _ in range(35):
                other.commit(add_one, "count in")
        seen.append(view.version)
        return add_one(view)

    sleeper.commit(plan, "count in")
    assert len(seen) == 2
    assert other.read(counted) == 37


def test_files_that_no_commit_names_go_when_they_are_old(tmp_path: Path) -> None:
    table = table_in(tmp_path, upkeep=EAGER)
    table.commit(add_one, "count in")
    old, young = Path(table.uri, "part-old.parquet"), Path(table.uri, "part-young.parquet")
    old.write_bytes(b"lost")
    young.write_bytes(b"being written")
    os.utime(old, (1, 1))
    while table.commit(add_one, "count in") != EAGER.orphans_every_commits:
        pass
    assert not old.exists()
    assert young.exists()


def test_upkeep_that_fails_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def tidy(_: DeltaTable) -> None:
        raise OSError("the broom broke")

    table = table_in(tmp_path, tidy=tidy, upkeep=EAGER)
    with caplog.at_level("WARNING"):
        for _ in range(12):
            table.commit(add_one, "count in")
    assert table.read(counted) == 12
    (record,) = own_records(caplog)
    assert (record.levelname, "the broom broke" in record.getMessage()) == ("WARNING", True)


class JumpingClock:
    """Says that a commit took an hour, once."""

    def __init__(self) -> None:
        self.looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return 0.0 if self.looks == 1 else 3600.0

    def wait(self, event: threading.Event, timeout_s: float) -> bool:  # noqa: ARG002
        return False


def test_a_commit_that_took_very_long_is_looked_at_again(tmp_path: Path) -> None:
    plans: list[int] = []

    def plan(view: TableView) -> Change | None:
        plans.append(counted(view))
        return setting(1) if counted(view) == 0 else None

    table = table_in(tmp_path, clock=JumpingClock())
    table.commit(plan, "count in")
    assert plans == [0, 1]


def test_storage_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    table = table_in(tmp_path / "file")
    assert table.read(counted) is None
    with pytest.raises(TidelakeError) as caught:
        table.commit(add_one, "count in")
    text = str(caught.value)
    assert text.startswith(f"cannot create {table.uri}: ")
    assert "reachable" in text
    assert "\n" not in text
    assert "\x1b" not in text


def fill_the_disk(warehouse: str) -> None:
    """RLIMIT_FSIZE refuses writes as a full disk does, for this process alone."""
    table = table_in(warehouse)
    table.commit(add_one, "count in")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        table.commit(add_one, "count in")
    except TidelakeError as error:
        message = str(error)
    else:
        raise AssertionError("a commit on a full disk went through")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert message.startswith(f"cannot count in {table.uri}: "), message
    assert "\n" not in message, message
    table.commit(add_one, "count in")
    assert table.read(counted) == 2


def test_a_full_disk_is_one_line_and_heals(tmp_path: Path) -> None:
    worker = multiprocessing.get_context("spawn").Process(
        target=fill_the_disk, args=(str(tmp_path),)
    )
    worker.start()
    worker.join(300)
    assert worker.exitcode == 0


def test_a_table_that_is_removed_under_a_writer_is_named(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    table.commit(add_one, "count in")
    shutil.rmtree(table.uri)
    with pytest.raises(TidelakeError, match=r"^cannot count in .*/counter: the table is gone$"):
        table.commit(add_one, "count in")


def test_other_writers_do_not_starve_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, other = table_in(tmp_path), table_in(tmp_path)
    monkeypatch.setattr(module, "MAX_TRIES", 3)

    def plan(view: TableView) -> Change:
        other.commit(add_one, "count in")
        return add_one(view)

    with pytest.raises(TidelakeError, match="other writers came first 3 times"):
        ours.commit(plan, "count in")


def fill_all_four(warehouse: Path) -> None:
    ownership = Ownership(capture_id="c1", epoch="e", etcd_cluster_id="e1", election_revision=3)
    initial = ChangefeedRow(
        changefeed_id="shop",
        start_ts=1,
        checkpoint_ts=1 << 18,
        resolved_ts=2 << 18,
        source_positions={"shop/0": 7},
        watermarks={"shop/0": RecordedWatermark(ts=5, position=9)},
        source_identities={"shop/0": "id"},
        fingerprint="f",
    )
    row = Changefeeds(str(warehouse)).claim(initial, ownership, ttl_s=1, stop=threading.Event())
    progress, snapshots = Progress(str(warehouse)), Snapshots(str(warehouse))
    progress.claim("shop", row.term)
    snapshots.claim("shop", row.term)
    span = ProgressRow(
        changefeed_id="shop",
        incarnation=1,
        schema_name="shop",
        table_name="orders",
        generation=1,
        state="replicating",
        checkpoint_ts=1000 << 18,
        resolved_ts=1000 << 18,
        delta_version=4,
        engine="spark",
        source_positions={"shop/0": 7},
        capture_id="c1",
        epoch="e1",
        fence=fence_number(row.term),
    )
    progress.advance([span], row.term)
    cut = SnapshotRow(changefeed_id="shop", primary_ts=1000 << 18, tables={"shop.orders": 4})
    assert snapshots.publish(cut, row.term)
    dead = {name: [None] for name in ("schema_name", "table_name", "commit_ts")}
    dead |= {"changefeed_id": ["shop"], "part": ["shop/0"], "position": [3], "identity": ["a"]}
    dead |= {"value": [b"\x00{"], "error_class": ["BadJson"], "message": ["no"]}
    assert DeadLetters(str(warehouse)).merge(pa.table(dead)) == 1


@pytest.mark.spark
def test_spark_reads_all_four_tables_with_plain_sql(tmp_path: Path, spark: SparkSession) -> None:
    fill_all_four(tmp_path)

    def select(name: str, columns: str = "*"):
        return spark.sql(f"SELECT {columns} FROM delta.`{tmp_path}/_tidelake/{name}`")

    changefeeds = select(
        "changefeeds",
        "term, owner_revision, source_positions['shop/0'] low, watermarks['shop/0'].ts w,"
        " source_identities['shop/0'] id, incarnation, target_ts, updated_at > '2020-01-01'",
    )
    assert changefeeds.collect() == [(1, 3, 7, 5, "id", 1, None, True)]
    types = dict(select("changefeeds").dtypes)
    assert types["source_positions"] == "map<string,bigint>"
    assert types["watermarks"] == "map<string,struct<ts:bigint,position:bigint,token:string>>"
    assert (types["incarnation"], types["term"], types["updated_at"]) == (
        "int",
        "bigint",
        "timestamp",
    )

    progress = select(
        "progress",
        "schema_name, table_name, span, unix_millis(checkpoint_time), delta_version, fence,"
        " source_positions['shop/0']",
    )
    assert progress.collect() == [("shop", "orders", "(-inf, +inf)", 1000, 4, 1 << 32, 7)]

    snapshots = select("snapshots", "explode(tables)")
    assert snapshots.collect() == [("shop.orders", 4)]
    assert dict(select("snapshots").dtypes)["tables"] == "map<string,bigint>"

    letters = select("dead_letters", "part, position, value, schema_name, message")
    assert letters.collect() == [("shop/0", 3, bytearray(b"\x00{"), None, "no")]
    assert dict(select("dead_letters").dtypes)["value"] == "binary"

    described = spark.sql(f"DESCRIBE delta.`{tmp_path}/_tidelake/progress`").collect()
    assert all(item.comment for item in described)
