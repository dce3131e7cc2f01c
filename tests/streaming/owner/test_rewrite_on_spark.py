"""Who writes rows anew: one process where the table is small, Spark's executors where it is large.
Whichever it is, and whoever dies over it: the same rows, and one commit."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from coordination.errors import Fenced, Stop, TidelakeError, TryAgain
from sinks.merge_on_write.alter import duplicate_keys, rewrite
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.log.reader import read_log
from sinks.merge_on_write.upkeep.clean_up import clean_files
from sinks.storage.local_storage import LocalStorage
from sinks.target.engine_port import Applied, Skipped
from sinks.target.retention_properties import DAY_MS
from streaming.owner import rewrite_on_spark
from tests.conftest import ROOT
from tests.own_lines import own_lines, own_text
from tests.services.delta_rows import read_rows
from tests.services.s3_server import S3Server
from tests.sinks.merge_on_write.altering import AlteredHistory, column
from tests.sinks.merge_on_write.ddls import ADD_FILLED, ID, C, V, change, ddl, orphans
from tests.sinks.merge_on_write.orders import made, rows_of, write
from tests.sinks.test_object_store import Lake
from tests.streaming.owner.rewriting import (
    ROWS_OF_A_PART,
    Ground,
    OnExecutors,
    dies,
    fails,
    hangs,
    lacks_something,
)

PATIENCE_S = 60.0
LARGE = 1 << 40
BEGUN_BESIDE = 3  # the first parts, while one of them hangs


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    return made(tmp_path_factory.mktemp("orders") / "table")


@pytest.fixture
def uri(template: str, tmp_path: Path) -> str:
    return str(shutil.copytree(template, tmp_path / "a table~41 é"))


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "SLICE_ROWS", ROWS_OF_A_PART)


@pytest.fixture
def engine() -> Iterator[MergeOnWriteEngine]:
    made = MergeOnWriteEngine({}, keeps_up=False)
    yield made
    made.close()


def assert_filled(uri: str, before: dict[int, str], version: int = 13) -> None:
    assert DeltaTable(uri).version() == version
    assert rows_of(uri) == before
    assert {row["n"] for row in read_rows(uri)} == {7}


class TestOneProcess:
    def test_a_small_table_needs_no_spark(self, uri: str, engine: MergeOnWriteEngine) -> None:
        ground, before = Ground(None), rows_of(uri)
        engine.alter(ddl(uri, ADD_FILLED, map_parts=ground.mapper(LARGE)))
        assert_filled(uri, before)
        assert ground.asked == 0
        assert ground.watchdog.under_way == {}

    @pytest.mark.parametrize("end", ["stop", "fence"])
    def test_it_ends_between_two_parts(
        self, uri: str, engine: MergeOnWriteEngine, end: str
    ) -> None:
        ground, done = Ground(None), 0

        def count(work: Any) -> Callable[[Any], Any]:
            def counted(part: Any) -> Any:
                nonlocal done
                done += 1
                if done == 2 and end == "stop":
                    ground.stopping.set()
                elif done == 2:
                    ground.is_trusted = False
                return work(part)

            return counted

        order = ddl(uri, ADD_FILLED, map_parts=ground.doing(count, LARGE))
        with pytest.raises(Stop if end == "stop" else Fenced):
            engine.alter(order)
        assert (done, DeltaTable(uri).version(), orphans(uri)) == (2, 12, set())
        assert ground.watchdog.under_way == {}

    def test_it_says_how_far_it_is(
        self,
        uri: str,
        engine: MergeOnWriteEngine,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(rewrite_on_spark, "SAY_S", 0.0)
        with caplog.at_level(logging.INFO):
            engine.alter(ddl(uri, ADD_FILLED, map_parts=Ground(None).mapper(LARGE)))
        said = [each for each in own_lines(caplog) if "writes rows anew" in each]
        assert "table=shop.orders done=1 parts=6 lasts_s=0" in said[0]
        assert "done=6 parts=6" in said[-1]


@pytest.mark.spark
class TestSpark:
    def test_the_same_rows_and_one_commit(
        self, uri: str, engine: MergeOnWriteEngine, spark: SparkSession
    ) -> None:
        ground, before = Ground(spark), rows_of(uri)
        order = ddl(uri, ADD_FILLED, map_parts=ground.mapper())
        assert engine.alter(order) == Applied(13)
        assert engine.alter(order) == Skipped(13, C - 1)
        assert_filled(uri, before)
        assert (ground.asked, orphans(uri), ground.watchdog.under_way) == (1, set(), {})

    def test_random_tables(
        self, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """All types, NULLs, vectors, names of any character; keys too, in several shares."""
        monkeypatch.setattr(duplicate_keys, "SHARE_KEYS", 5)
        monkeypatch.setattr(rewrite, "SLICE_ROWS", 3)
        ground = Ground(spark)
        for seed in (203, 210, 215, 217, 220):
            history = AlteredHistory(seed=seed, folder=tmp_path)
            history.map_parts = ground.mapper()
            try:
                for _ in range(14):
                    history.step()
                history.check()
                history.check_states()
            finally:
                history.close()
        assert ground.asked > 5

    def test_a_value_without_a_place_in_the_third_part(
        self, uri: str, engine: MergeOnWriteEngine, spark: SparkSession
    ) -> None:
        engine.apply(write(uri, 13, {number: str(number) for number in range(120)}))
        for number in range(6):
            more: dict[int, str | None] = {number * 10 + at: str(at) for at in range(10)}
            more |= {25: "x"} if number == 2 else {55: "y"} if number == 5 else {}
            engine.apply(write(uri, 14 + number, more))
        lines = []
        for ground in (Ground(None), Ground(spark)):
            mapper = ground.mapper(LARGE if ground.has_no_spark else 0)
            with pytest.raises(TidelakeError) as refused:
                engine.alter(ddl(uri, change(ID, column("v", "int")), map_parts=mapper))
            lines.append(str(refused.value))
            assert DeltaTable(uri).version() == 19
        assert lines[0] == lines[1]
        assert "table shop.orders: column v: its value 'x'" in lines[0]
        key = ddl(uri, change(ID, V, key=("v",)), map_parts=Ground(spark).mapper())
        with pytest.raises(TidelakeError, match=r"two rows have \('0'\)"):
            engine.alter(key)

    def test_a_worker_is_killed_over_a_part(
        self, uri: str, engine: MergeOnWriteEngine, spark: SparkSession, tmp_path: Path
    ) -> None:
        before, marks = rows_of(uri), folder(tmp_path)
        mapper = Ground(spark).doing(lambda work: OnExecutors(work, dies, marks))
        assert engine.alter(ddl(uri, ADD_FILLED, map_parts=mapper)) == Applied(13)
        assert_filled(uri, before)
        assert len(list(Path(marks).glob("mark*"))) == 2, "it was done again"

    def test_a_part_fails_again_and_again(
        self, uri: str, engine: MergeOnWriteEngine, spark: SparkSession, tmp_path: Path
    ) -> None:
        """Then all of it is tried again a little later."""
        before, marks = rows_of(uri), folder(tmp_path)
        mapper = Ground(spark).doing(
            lambda work: OnExecutors(work, dies, marks, rewrite_on_spark.TRIES)
        )
        order = ddl(uri, ADD_FILLED, map_parts=mapper)
        with pytest.raises(TryAgain, match=r"shop\.orders written anew: part \d of 6 failed"):
            engine.alter(order)
        assert DeltaTable(uri).version() == 12
        assert engine.alter(order) == Applied(13)
        assert_filled(uri, before)

    def test_what_the_work_raises_is_raised_here(
        self, uri: str, engine: MergeOnWriteEngine, spark: SparkSession, tmp_path: Path
    ) -> None:
        mapper = Ground(spark).doing(lambda work: OnExecutors(work, fails, folder(tmp_path)))
        with pytest.raises(RuntimeError, match=r"^a bug$"):
            engine.alter(ddl(uri, ADD_FILLED, map_parts=mapper))
        assert DeltaTable(uri).version() == 12

    def test_executors_that_lack_something(
        self,
        uri: str,
        engine: MergeOnWriteEngine,
        spark: SparkSession,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """This process does what is left."""
        before = rows_of(uri)
        mapper = Ground(spark).doing(
            lambda work: OnExecutors(work, lacks_something, folder(tmp_path), times=99)
        )
        assert engine.alter(ddl(uri, ADD_FILLED, map_parts=mapper)) == Applied(13)
        assert_filled(uri, before)
        assert "one process writes rows anew table=shop.orders" in own_text(caplog)
        assert "has no module pyroaring" in own_text(caplog)

    @pytest.mark.parametrize("end", ["stop", "fence"])
    def test_a_task_hangs(
        self,
        uri: str,
        engine: MergeOnWriteEngine,
        spark: SparkSession,
        tmp_path: Path,
        end: str,
    ) -> None:
        """Who is asked to stop, or has lost its lease, does not wait for it; and its step is known
        to the watchdog. It is the last job by then, and is cancelled all the same."""
        ground, marks = Ground(spark), folder(tmp_path)
        mapper = ground.doing(lambda work: OnExecutors(work, hangs, marks))
        raised: list[BaseException] = []

        def alter() -> None:
            try:
                engine.alter(ddl(uri, ADD_FILLED, map_parts=mapper))
            except BaseException as error:  # noqa: BLE001 - looked at below
                raised.append(error)

        owner = Thread(target=alter)
        owner.start()
        await_(lambda: any(Path(marks).glob("mark*")))
        assert [each.what for each in ground.watchdog.under_way] == ["the rewrite of shop.orders"]
        status = spark.sparkContext.statusTracker()
        await_(lambda: len(orphans(uri)) >= BEGUN_BESIDE and len(status.getActiveJobsIds()) == 1)
        if end == "stop":
            ground.stopping.set()
        else:
            ground.is_trusted = False
        owner.join(PATIENCE_S)
        assert not owner.is_alive()
        assert [type(each) for each in raised] == [Stop if end == "stop" else Fenced]
        assert (DeltaTable(uri).version(), ground.watchdog.under_way) == (12, {})
        await_(lambda: not status.getActiveJobsIds())

    def test_rows_on_s3(self, s3: S3Server, spark: SparkSession) -> None:
        """The executors have nothing in their environment."""
        lake = Lake(f"s3://{s3.bucket}/{uuid4()}", s3.options).create()
        engine = lake.engine()
        for number in range(5):
            rows = {number * 10 + at: f"v{at}" for at in range(8)}
            engine.apply(lake.write(10 + number, {**rows, number * 5: None}))
        before = lake.rows()
        order = ddl(lake.target.uri, ADD_FILLED, map_parts=Ground(spark, "s3://x").mapper())
        assert engine.alter(replace(order, target=lake.target)) == Applied(6)
        assert lake.rows() == before
        again = ddl(lake.target.uri, ADD_FILLED, map_parts=Ground(spark, "s3://x").mapper())
        assert lake.engine().alter(replace(again, target=lake.target)) == Skipped(6, C - 1)


@pytest.mark.parametrize("nth", [1, pytest.param(3, marks=pytest.mark.more)])
def test_an_owner_is_killed_amid_it(uri: str, nth: int) -> None:
    """It and its Spark; the next owner does it, once."""
    before = rows_of(uri)
    command = [sys.executable, "-m", "tests.streaming.owner.rewriting", uri]
    env = {**os.environ, "SPARK_MASTER": "local[2]", "TIDELAKE_JARS": str(ROOT / ".jars" / "spark")}
    killed = subprocess.run(
        command,
        cwd=ROOT,
        env={**env, "TIDELAKE_FAILPOINTS": f"amid-rewrite=kill:{nth}"},
        timeout=300,
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    assert DeltaTable(uri).version() == 12
    assert len(orphans(uri)) >= nth
    left = orphans(uri)
    second = subprocess.run(
        command, cwd=ROOT, env=env, timeout=300, capture_output=True, text=True, check=True
    )
    assert "Applied(version=13)" in second.stdout
    assert_filled(uri, before)
    assert left <= orphans(uri)
    storage, now_ms = LocalStorage(uri), int(time.time() * 1000)
    state = read_log(storage)
    assert state is not None
    clean_files(storage, state, now_ms=now_ms + 8 * DAY_MS, orphans=True)
    assert orphans(uri) == set()
    assert_filled(uri, before)


def folder(tmp_path: Path) -> str:
    made = tmp_path / "marks"
    made.mkdir()
    return str(made)


def await_(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)
