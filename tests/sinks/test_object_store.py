"""Targets on S3: made, written, sealed and told of without Spark and without Hadoop."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from conf.load import load_settings
from coordination.errors import ConfigError, TidelakeError, TryAgain
from coordination.model import SEALED_TS, Ownership, TableName, Ts
from sinks.control.changefeeds import ChangefeedRow, Changefeeds
from sinks.ddl.schema_change import SchemaChange
from sinks.merge_on_write.alter.dropped_rows import kept_uri
from sinks.merge_on_write.alter.table_ddl import TableDdl
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.create import create
from sinks.merge_on_write.version_reader import open_version
from sinks.storage.errors import StorageAway, StorageRefuses
from sinks.storage.open_storage import open_storage
from sinks.storage.table_storage import TableStorage
from sinks.target.engine_port import OP_COLUMN, Applied, Skipped, TableWrite, Target, app_id
from sinks.target.table_properties import DdlIdentity, ownership
from sinks.target.target_table import TargetState, inspect, seal, table_uri
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from streaming.changefeed.preflight import check_beginning
from streaming.cli.main import main
from tests.services.s3_server import S3Server
from tests.sinks.merge_on_write.faulty_storage import FaultyStorage, once
from tests.sinks.merge_on_write.kinds_of_ddl import table_ddl

SCHEMA = TableSchema(
    columns=tuple(
        Column(name=name, type=MySQLType.parse(of))
        for name, of in {"id": "bigint", "v": "varchar(9)"}.items()
    ),
    key=("id",),
)
Rows = Mapping[int, str | None]  # None: deleted


class Lake:
    """A warehouse, and one table of it."""

    def __init__(self, uri: str, options: Mapping[str, str], table: str = "orders") -> None:
        self.warehouse, self.options = uri, dict(options)
        name = TableName("shop", table)
        identity = app_id("shop", 1, name)
        self.target = Target(name=name, uri=table_uri(uri, name), schema=SCHEMA, app_id=identity)

    def create(self) -> Lake:
        ddl = DdlIdentity(commit_ts=Ts(5), order=0, query="CREATE TABLE …")
        origin = ownership(changefeed_id="shop", incarnation=1, ddl=ddl)
        create(self.target, properties=origin, storage_options=self.options)
        return self

    def engine(self) -> MergeOnWriteEngine:
        return MergeOnWriteEngine(self.options, keeps_up=False)

    def write(
        self, limit: int, rows: Rows, before_commit: Callable[[], object] = lambda: None
    ) -> TableWrite:
        columns = {
            "id": pa.array(list(rows), pa.int64()),
            "v": pa.array(list(rows.values()), pa.string()),
            OP_COLUMN: pa.array(["D" if v is None else "U" for v in rows.values()], pa.string()),
        }
        return TableWrite(
            target=self.target,
            checkpoint=Ts(0),
            limit=Ts(limit),
            changes=pa.table(columns),
            user_metadata="{}",
            before_commit=lambda: (before_commit(), None)[1],
        )

    def state(self) -> TargetState:
        found = inspect(self.target.uri, self.options)
        assert found is not None
        return found

    def rows(self) -> dict[int, str]:
        table = DeltaTable(self.target.uri, storage_options=self.options)
        found = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
        return {row["id"]: row["v"] for row in pa.table(found).to_pylist()}


NAMES = (
    "a",
    "a#b",
    "a?b",
    "a#",
    "a?",
    "a;b",
    "a:b",
    "a@b",
    "a&b=c",
    "a+b",
    "a b",
    "a[b]",
    "a*",
    "a^{b}",
    "é",
)


def test_every_name_has_a_place_of_its_own(s3: S3Server) -> None:
    uri = f"s3://{s3.bucket}/{uuid4()}"
    lakes = [Lake(uri, s3.options, name).create() for name in NAMES]
    for number, lake in enumerate(lakes):
        assert lake.engine().apply(lake.write(10, {number: "x"})) == Applied(1)
    for number, lake in enumerate(lakes):
        assert lake.state().version == 1
        assert lake.rows() == {number: "x"}


@pytest.fixture(params=["options", "environment"])
def lake(request: pytest.FixtureRequest, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Its credentials are in the one or in the other."""
    for name, value in s3.options.items() if request.param == "environment" else ():
        monkeypatch.setenv(name, value)
    options = s3.options if request.param == "options" else {}
    return Lake(f"s3://{s3.bucket}/{uuid4()}", options)


def test_a_table_is_made_written_looked_at_and_sealed(lake: Lake) -> None:
    with ThreadPoolExecutor(3) as pool:  # captures that all see its CREATE TABLE
        for made in [pool.submit(lake.create) for _ in range(3)]:
            made.result()
    made_now = lake.state()
    assert (made_now.version, made_now.changefeed_id, made_now.schema) == (0, "shop", SCHEMA)
    engine = lake.engine()
    assert engine.apply(lake.write(10, {1: "a", 2: "a", 3: "a"})) == Applied(1)
    assert engine.apply(lake.write(20, {2: "b", 3: None})) == Applied(2)
    assert lake.engine().apply(lake.write(20, {1: None})) == Skipped(2, Ts(20))
    assert lake.rows() == {1: "a", 2: "b"}
    assert lake.state().identity(lake.target.app_id) == 20

    for version, rows in ((1, {1: "a", 2: "a", 3: "a"}), (2, {1: "a", 2: "b"})):
        found = open_version(lake.target.uri, version, lake.options)
        assert {row["id"]: row["v"] for row in found.to_table().to_pylist()} == rows
        assert found.count_rows() == len(rows)

    sealed = seal(lake.target.uri, [lake.target.app_id], "new", lambda ts: ts, lake.options)
    assert (sealed.version, sealed.identity("new")) == (3, 20)
    assert engine.apply(lake.write(30, {1: None})) == Skipped(3, Ts(SEALED_TS))
    assert lake.rows() == {1: "a", 2: "b"}


@pytest.fixture
def on_s3(s3: S3Server) -> Lake:
    return Lake(f"s3://{s3.bucket}/{uuid4()}", s3.options).create()


def test_of_two_seals_at_once_one_is_told_to_look_again(on_s3: Lake) -> None:
    """delta-rs seals, by the store's conditional put too."""
    both_have_looked = threading.Barrier(2, timeout=120)

    def begin(ts: Ts) -> Ts:
        both_have_looked.wait()
        return ts

    def sealed(by: str) -> bool:
        try:
            seal(on_s3.target.uri, [on_s3.target.app_id], by, begin, on_s3.options)
        except TryAgain:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(sealed, ["one", "two"])) == [False, True]
    assert on_s3.state().version == 1


def test_a_writer_that_is_frozen_before_its_put_wakes_after_its_successor(on_s3: Lake) -> None:
    storages: list[FaultyStorage] = []

    class Frozen(MergeOnWriteEngine):
        def _open_storage(self, uri: str) -> TableStorage:
            storages.append(FaultyStorage(super()._open_storage(uri)))
            return storages[-1]

    zombie = Frozen(on_s3.options, keeps_up=False)
    zombie.apply(on_s3.write(10, {1: "a", 2: "a"}))
    successor = on_s3.engine()

    def goes_further(_path: str) -> None:
        assert successor.apply(on_s3.write(30, {1: "new", 2: None, 4: "new"})) == Applied(2)

    storages[0].before = once(goes_further)
    assert zombie.apply(on_s3.write(20, {1: "old", 3: "old"})) == Skipped(2, Ts(30))
    assert on_s3.rows() == {1: "new", 4: "new"}

    def seals(_path: str) -> None:
        seal(on_s3.target.uri, [on_s3.target.app_id], "new", lambda ts: ts, on_s3.options)

    storages[0].before = once(seals)
    assert zombie.apply(on_s3.write(40, {1: None})) == Skipped(3, Ts(SEALED_TS))
    assert on_s3.rows() == {1: "new", 4: "new"}


def test_a_table_is_altered_emptied_dropped_and_made_again(s3: S3Server) -> None:
    """Its rows are kept by absolute names, which have characters that a URI writes otherwise."""
    lake = Lake(f"s3://{s3.bucket}/{uuid4()}/a b ü", s3.options).create()
    engine, before = lake.engine(), lake.target
    engine.apply(lake.write(10, {1: "a", 2: "a"}))
    engine.apply(lake.write(11, {2: "b", 1: None}))
    added = Column(name="n", type=MySQLType.parse("int"))
    after = replace(SCHEMA, columns=(*SCHEMA.columns, added))
    sources = {"id": "id", "v": "v", "n": None}
    change = SchemaChange(before=SCHEMA, after=after, sources=sources, fills={"n": "7"})

    def ddl(commit_ts: int, target: Target = before, **does: Any) -> TableDdl:
        identity = DdlIdentity(commit_ts=Ts(commit_ts), order=0, query="…")
        return table_ddl(target=target, ddl=identity, **does)

    assert engine.alter(ddl(20, change=change)) == Applied(3)
    assert lake.engine().alter(ddl(20, change=change)) == Skipped(3, Ts(19))
    dropped = ddl(30, replace(before, schema=after), on_drop="keep")
    assert engine.alter(dropped) == Applied(4)
    assert lake.rows() == {}
    lake.target = replace(before, uri=kept_uri(before.uri, dropped.ddl))
    assert lake.rows() == {2: "b"}
    lake.target = before
    origin = ownership(changefeed_id="shop", incarnation=1, ddl=ddl(40).ddl)
    create(before, properties=origin, storage_options=s3.options)
    assert engine.apply(lake.write(50, {5: "e"})) == Applied(6)
    assert lake.rows() == {5: "e"}


DIES = """
import json, os, sys
from sinks.storage.object_storage import ObjectStorage
from tests.sinks.test_object_store import Lake
warehouse, options, nth = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
lake = Lake(warehouse, options)
engine = lake.engine()
engine.table(lake.target.uri)
puts = []
def counted(put):
    def putting(*arguments):
        puts.append(put)
        if len(puts) == nth:
            os.kill(os.getpid(), 9)
        return put(*arguments)
    return putting
ObjectStorage.write = counted(ObjectStorage.write)
ObjectStorage.create = counted(ObjectStorage.create)
engine.apply(lake.write(20, {1: "b", 3: "b"}))
print(len(puts))
os.kill(os.getpid(), 9)
"""


def test_a_writer_that_is_killed_at_any_of_its_puts(s3: S3Server) -> None:
    """Of the rows, of the vectors, of the commit, and after it."""

    def killed(nth: int) -> str:
        lake = Lake(f"s3://{s3.bucket}/killed-{nth}-{uuid4()}", s3.options).create()
        lake.engine().apply(lake.write(10, {1: "a", 2: "a"}))
        command = [sys.executable, "-c", DIES, lake.warehouse, json.dumps(s3.options), str(nth)]
        done = subprocess.run(command, check=False, timeout=300, capture_output=True, text=True)
        assert done.returncode == -9, done.stderr
        has_committed = lake.state().identity(lake.target.app_id) == 20
        again = lake.engine().apply(lake.write(20, {1: "b", 3: "b"}))
        assert again == (Skipped(2, Ts(20)) if has_committed else Applied(2))
        assert lake.rows() == {1: "b", 2: "a", 3: "b"}
        return f"{has_committed} {done.stdout.strip()}".strip()

    with ThreadPoolExecutor(2) as pool:
        *amid, last = pool.map(killed, [1, 2, 3, 4])
    assert amid == ["False"] * 3
    assert last in ("True 3", "True")  # without its words where a slow put was sent twice


# What an operator reads.


@contextmanager
def one_that_checks_credentials() -> Iterator[S3Server]:
    with S3Server() as own:
        at, plain = f"{own.url}/moto-api/reset-auth", {"Content-Type": "text/plain"}
        urllib.request.urlopen(urllib.request.Request(at, b"0", plain)).close()
        yield own


QUICK = {"max_retries": "1"}


def troubles(s3: S3Server) -> dict[str, tuple[str, dict[str, str], type[TidelakeError], str]]:
    """What is wrong -> warehouse, options, error, what it must say."""
    lake = f"s3://{s3.bucket}/lake"
    away = {**s3.options, **QUICK, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    none = {
        name: value
        for name, value in s3.options.items()
        if name not in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    }
    none |= {**QUICK, "AWS_METADATA_ENDPOINT": "http://127.0.0.1:9/169.254.169.254"}
    return {
        "no bucket": ("s3://nowhere/x", s3.options, StorageRefuses, "no such bucket"),
        "no answer": (lake, away, StorageAway, "the storage does not answer"),
        "no credentials": (lake, none, StorageRefuses, "no valid credentials of ours. Set AWS_"),
        "wrong ones": (lake, s3.options, StorageRefuses, "no valid credentials of ours. Set AWS_"),
    }


@pytest.mark.parametrize("trouble", ["no bucket", "no answer", "no credentials", "wrong ones"])
def test_trouble_is_one_sentence_whatever_was_to_be_done(
    s3: S3Server,
    trouble: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name in s3.options:
        monkeypatch.delenv(name, raising=False)
    with one_that_checks_credentials() if trouble == "wrong ones" else nullcontext(s3) as server:
        warehouse, options, kind, says = troubles(server)[trouble]
        lake = Lake(warehouse, options)
        for attempt in (
            lake.create,
            lake.state,
            lambda: lake.engine().apply(lake.write(10, {1: "a"})),
        ):
            with pytest.raises(kind) as caught:
                attempt()
            assert says in str(caught.value)
            assert "\n" not in str(caught.value)

        config = tmp_path / "changefeed.toml"
        listed = "\n".join(f"{name} = '{value}'" for name, value in options.items())
        config.write_text(f'sink-uri = "delta+{warehouse}"\n[storage-options]\n{listed}\n')
        for command in (["progress"], ["snapshot"], ["table", "pause", "--table", "shop.orders"]):
            with pytest.raises(SystemExit) as ended:
                main([*command, "--config", str(config)])
            assert ended.value.code == 1
            (line,) = capfd.readouterr().err.splitlines()
            assert says in line


@pytest.mark.parametrize("by_options", [False, True])
def test_an_endpoint_that_is_no_url_is_refused_before_a_client_panics_at_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    *,
    by_options: bool,
) -> None:
    config, endpoint = tmp_path / "changefeed.toml", "127.0.0.1:9"
    config.write_text('sink-uri = "delta+s3://lake/x"\n')
    if by_options:
        config.write_text(f"{config.read_text()}[storage-options]\naws_endpoint = '{endpoint}'\n")
    else:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    run = [
        "run",
        "--source-uri",
        "kafka://127.0.0.1:9/t?protocol=canal-json&enable-tidb-extension=true",
    ]
    for command in (run, ["progress"], ["table", "pause", "--table", "shop.orders"]):
        with pytest.raises(SystemExit) as ended:
            main([*command, "--config", str(config)])
        assert ended.value.code == 2
        assert "is no URL: give it as https://" in capfd.readouterr().err.splitlines()[-1]
    with pytest.raises(ConfigError, match="is no URL"):
        open_storage("s3://lake/x", {"AWS_ENDPOINT_URL": endpoint})


def test_a_beginning_is_looked_for_with_options_that_are_references(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = f"s3://{s3.bucket}/{uuid4()}"
    for name, value in s3.options.items():
        monkeypatch.setenv(f"LAKE_{name}", value)
    options = {name: f"${{env:LAKE_{name}}}" for name in s3.options}
    found = ChangefeedRow(changefeed_id="shop", start_ts=0, checkpoint_ts=5, resolved_ts=5)
    owner = Ownership(capture_id="one", epoch="e", etcd_cluster_id="c", election_revision=1)
    changefeeds = Changefeeds(warehouse, s3.options)
    claimed = changefeeds.claim(found, owner, ttl_s=1, stop=threading.Event())
    changefeeds.save(replace(claimed, state="running", source_positions={"shop/0": 5}))
    source = "kafka://127.0.0.1:9/shop?protocol=canal-json&enable-tidb-extension=true"
    arguments = {"source-uri": source, "sink-uri": f"delta+{warehouse}", "changefeed-id": "shop"}
    changefeed = load_settings(config=None, environment={}, arguments=arguments).changefeed
    sink = replace(changefeed.sink, storage_options=tuple(options.items()))
    check_beginning(replace(changefeed, sink=sink))  # it is known there: no broker is asked
