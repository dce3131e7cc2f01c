"""A TiDB's tables are copied as of a TSO, and a TiCDC changefeed goes on from there: one history.

The TiDB is a stand-in (``tests/services/tidb_front.py``): it holds the shop as it was at the TSO.
The topic has the shop's whole feed, with rows and DDLs below, at and above the TSO, and replays.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from coordination.etcd.embedded import EmbeddedEtcd
from coordination.failpoint import Failpoint
from coordination.model import TableName
from sinks.control.changefeeds import Changefeeds
from sinks.control.progress import Progress
from sinks.control.reloads import Reloads
from streaming.cli.main import main
from tests.acceptance.one_process import Feed, shop_feed
from tests.acceptance.processes import ON_THREADS, Stage, await_
from tests.services.database_server import DatabaseServer
from tests.services.kafka_broker import KafkaBroker
from tests.services.tidb_front import TidbFront
from tests.shop import proof
from tests.shop.canal_json import Ddl
from tests.shop.feed import FeedSettings, messages
from tests.shop.history import SchemaChange
from tests.shop.model import Model

pytestmark = [
    *(pytest.mark.acceptance, pytest.mark.mariadb, pytest.mark.kafka, pytest.mark.etcd),
]
DEATHS = (
    (Failpoint.AFTER_CHUNK, 5),
    (Failpoint.AFTER_LOAD_ONE, 2),
    (Failpoint.AFTER_FIRST_ROWS, 1),
)


def fill(server: DatabaseServer, feed: Feed, ts: int) -> None:
    """The shop as it was at the TSO."""
    for event in feed.events:
        if isinstance(event, SchemaChange) and event.commit_ts <= ts:
            text = event.ddl.query.replace("TIMESTAMP(6)", "TIMESTAMP(6) NULL")
            server.execute(text.replace("DATABASE `shop`", "DATABASE shop CHARACTER SET utf8mb4"))
    with server.connect(autocommit=False, charset="utf8mb4") as connection:
        cursor = connection.cursor()
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
        for name, rows in Model.of(feed.events, ts).tables.items():
            for row in rows.values():
                columns, marks = ", ".join(row), ", ".join(["%s"] * len(row))
                cursor.execute(
                    f"INSERT INTO shop.{name} ({columns}) VALUES ({marks})",
                    [getattr(value, "item", lambda v=value: v)() for value in row.values()],
                )
        connection.commit()


@pytest.mark.parametrize(
    ("part", "deaths"),
    [
        (0.3, DEATHS[1:2]),
        pytest.param(0.3, DEATHS, marks=pytest.mark.soak),
        pytest.param(0.8, DEATHS, marks=pytest.mark.soak),
    ],
    ids=["early", "early, all deaths", "late, all deaths"],
)
def test_a_copy_and_the_topic_are_one_history(
    broker: KafkaBroker,
    etcd: EmbeddedEtcd,
    tmp_path: Path,
    part: float,
    deaths: Sequence[tuple[Failpoint, int]],
) -> None:
    feed = shop_feed(transactions=60)
    ts = feed.ts_at(part)
    with (
        DatabaseServer() as server,
        TidbFront(server) as tidb,
        Stage(broker, etcd.endpoint, tmp_path, program=ON_THREADS) as stage,
    ):
        fill(server, feed, ts)
        copy = f"tidb://root@127.0.0.1:{tidb.port}/?chunk-rows=10&snapshot-ts={ts}"
        for point, nth in deaths:
            killed = {"TIDELAKE_FAILPOINTS": f"{point}=kill:{nth}"}
            life = stage.start(str(point), source_uri=copy, given=killed)
            assert life.await_exit() == -signal.SIGKILL, life.tail()
        life = stage.start("copy", source_uri=copy)
        assert life.await_exit() == 0, life.tail()
        assert life.lines(f"--start-ts={ts}")
        assert {at for at, _ in tidb.reads} == {ts}
        assert tidb.wrong == []
        (cut,) = proof.ledger(stage.warehouse)
        assert cut["primary_ts"] == ts
        assert Model.of(feed.events, ts).differences(stage.warehouse, cut["tables"]) == []

        broker.produce(stage.topic, feed.messages)
        life = stage.start("follow", target_ts=feed.last_ts)
        assert life.await_exit() == 0, life.tail()
        stage.assert_equal(feed.events)
        row = Changefeeds(str(stage.warehouse)).read("shop")
        assert row is not None
        assert (row.incarnation, row.start_ts, row.checkpoint_ts) == (1, ts, feed.last_ts)
        assert proof.ledger(stage.warehouse)[-1]["primary_ts"] == ts
        main(["diff", "--source-uri", copy, "--sink-uri", f"delta://{stage.warehouse}"])  # equal


@pytest.mark.parametrize(
    "deaths",
    [
        (),
        pytest.param(
            ((Failpoint.AFTER_CHUNK, 2), (Failpoint.AFTER_LOAD_ONE, 1)), marks=pytest.mark.soak
        ),
    ],
    ids=["alive", "killed"],
)
def test_tables_of_a_wider_filter_join(
    broker: KafkaBroker,
    etcd: EmbeddedEtcd,
    tmp_path: Path,
    deaths: Sequence[tuple[Failpoint, int]],
) -> None:
    """Of theirs, the stream has read rows before; of the others it is behind the copy's TSO."""
    feed = shop_feed(transactions=60)
    copied_ts, read_ts, joined_ts = map(feed.ts_at, (0.3, 0.45, 0.6))
    before = [each for each in feed.events if each.commit_ts <= joined_ts]
    behind = [each for each in feed.events if each.commit_ts > joined_ts]
    layout = FeedSettings(seed=1, watermark_every=3, replay_every=9, closing=False)
    narrow, wide = tmp_path / "narrow.toml", tmp_path / "wide.toml"
    narrow.write_text("[filter]\nrules = ['shop.orders', 'shop.payments']\n")
    wide.write_text("[filter]\nrules = ['shop.*']\n")
    with (
        DatabaseServer() as server,
        TidbFront(server) as tidb,
        Stage(broker, etcd.endpoint, tmp_path, program=ON_THREADS) as stage,
    ):
        copy = f"tidb://root@127.0.0.1:{tidb.port}/?chunk-rows=5"
        if deaths:  # else it begins with the CREATE TABLEs of the topic
            fill(server, feed, copied_ts)
            tidb.held_ts = copied_ts
            life = stage.start("copy", source_uri=copy, config=narrow)
            assert life.await_exit() == 0, life.tail()
        broker.produce(stage.topic, messages(before, layout))
        life = stage.start("narrow", target_ts=read_ts, config=narrow)
        assert life.await_exit() == 0, life.tail()

        server.execute("DROP DATABASE IF EXISTS shop")
        fill(server, feed, joined_ts)
        tidb.held_ts = joined_ts
        tidb.reads.clear()
        for point, nth in deaths:
            killed = {"TIDELAKE_FAILPOINTS": f"{point}=kill:{nth}"}
            life = stage.start(str(point), source_uri=copy, config=wide, given=killed)
            assert life.await_exit() == -signal.SIGKILL, life.tail()
        life = stage.start("join", source_uri=copy, config=wide)
        assert life.await_exit() == 0, life.tail()
        assert {at for at, _ in tidb.reads} == {joined_ts}
        assert not [each for _, each in tidb.reads if "`orders`" in each]

        broker.produce(stage.topic, messages(behind, FeedSettings(seed=2, watermark_every=3)))
        life = stage.start("wide", target_ts=feed.last_ts, config=wide)
        assert life.await_exit() == 0, life.tail()
        assert Model.of(feed.events).differences(stage.warehouse) == []
        cuts = proof.ledger(stage.warehouse)
        assert len(cuts[0]["tables"]) == len(Model.of(feed.events).tables)
        for cut in cuts:
            at = Model.of(feed.events, cut["primary_ts"])
            there = {name.removeprefix("shop.") for name in cut["tables"]}
            is_narrow = there <= {"orders", "payments"}
            assert cut["primary_ts"] <= read_ts if is_narrow else cut["primary_ts"] > joined_ts
            at.tables = {name: rows for name, rows in at.tables.items() if name in there}
            assert at.differences(stage.warehouse, cut["tables"]) == []


ANEW = (
    (Failpoint.AFTER_CHUNK, 2),
    (Failpoint.AFTER_LOAD_ONE, 1),
    (Failpoint.AFTER_FIRST_PROGRESS, 1),
)


@pytest.mark.parametrize(
    "deaths", [ANEW[1:2], pytest.param(ANEW, marks=pytest.mark.more)], ids=["killed", "all deaths"]
)
def test_a_table_is_loaded_anew(
    broker: KafkaBroker,
    etcd: EmbeddedEtcd,
    tmp_path: Path,
    deaths: Sequence[tuple[Failpoint, int]],
) -> None:
    """A DDL holds it, and its folder is gone. Some of the rows below the copy's TSO are read before
    it, and some after."""
    feed = shop_feed(transactions=60)
    read_ts, anew_ts = map(feed.ts_at, (0.45, 0.6))
    layout = FeedSettings(seed=1, watermark_every=3, replay_every=9, closing=False)
    read = [each for each in feed.events if each.commit_ts <= read_ts]
    held = Ddl("shop", "orders", "ALTER", "ALTER TABLE `shop`.`orders` FROBNICATE `id`")
    read.insert(-10, SchemaChange(read[-11].commit_ts + 1, held))
    behind = [each for each in feed.events if each.commit_ts > read_ts]
    with (
        DatabaseServer() as server,
        TidbFront(server) as tidb,
        Stage(broker, etcd.endpoint, tmp_path, program=ON_THREADS) as stage,
    ):
        broker.produce(stage.topic, messages(read, layout))
        life = stage.start("before")
        progress = Progress(str(stage.warehouse))
        await_(
            "the table that waits",
            lambda: (
                (row := progress.read("shop").get(TableName("shop", "orders")))
                and row.state == "blocked"
            ),
        )
        sink = f"delta://{stage.warehouse}"
        life.signal(signal.SIGTERM)
        assert life.await_exit() == 0, life.tail()
        (stage.warehouse / "shop" / "orders").rename(tmp_path / "orders")
        main(["table", "reload", "shop.orders", "--sink-uri", sink])
        fill(server, feed, anew_ts)
        tidb.held_ts = anew_ts
        copy = f"tidb://root@127.0.0.1:{tidb.port}/?chunk-rows=5"
        for point, nth in deaths:
            killed = {"TIDELAKE_FAILPOINTS": f"{point}=kill:{nth}"}
            life = stage.start(str(point), source_uri=copy, given=killed)
            assert life.await_exit() == -signal.SIGKILL, life.tail()
        life = stage.start("anew", source_uri=copy)
        assert life.await_exit() == 0, life.tail()
        (order,) = Reloads(str(stage.warehouse)).read("shop").values()
        assert (order.state, order.error) == ("done", None)
        assert all("`orders`" in each for _, each in tidb.reads)
        broker.produce(stage.topic, messages(behind, FeedSettings(seed=2, watermark_every=3)))
        life = stage.start("behind", target_ts=feed.last_ts)
        assert life.await_exit() == 0, life.tail()
        stage.assert_equal(feed.events)
