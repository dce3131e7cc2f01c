"""A DDL that is not known here holds its table alone; whoever dies meanwhile finds it so again."""

from __future__ import annotations

import re
import shlex
import signal
from pathlib import Path

import pytest

from coordination.etcd.embedded import EmbeddedEtcd
from coordination.model import TableName
from sinks.control.changefeeds import Changefeeds
from sinks.control.progress import Progress
from streaming.cli.main import main
from tests.acceptance.processes import ON_THREADS, Life, Stage, await_
from tests.services.kafka_broker import KafkaBroker
from tests.shop.canal_json import Ddl, encode_ddl
from tests.shop.feed import FeedSettings, messages
from tests.shop.history import HistorySettings, history
from tests.shop.tables import SCHEMA

pytestmark = pytest.mark.acceptance

HELD = TableName(SCHEMA, "customers")
UNKNOWN = f"ALTER TABLE `{HELD.schema}`.`{HELD.table}` FROBNICATE"


def test_others_go_on_over_a_kill_and_nothing_is_lost_when_it_is_skipped(
    broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path
) -> None:
    events = list(history(HistorySettings(seed=5, transactions=200)))
    last_ts = events[-1].commit_ts
    at_ts = events[len(events) // 3].commit_ts + 1
    ddl = encode_ddl(Ddl(HELD.schema, HELD.table, "ALTER", UNKNOWN), at_ts, 0)
    with Stage(broker, etcd.endpoint, tmp_path, program=ON_THREADS) as stage:
        feed = messages(events, FeedSettings(seed=5, replay_every=9))
        broker.produce(stage.topic, [(0, None, ddl), *feed])

        def await_others(life: Life) -> None:
            def are_there() -> bool:
                assert not life.is_over, life.tail()
                rows = Progress(str(stage.warehouse)).read("shop")
                others = [row.checkpoint_ts for name, row in rows.items() if name != HELD]
                is_blocked = HELD in rows and rows[HELD].state == "blocked"
                return is_blocked and len(others) > 0 and min(others) >= last_ts

            await_("others go on", are_there)

        first = stage.start("first")
        await_others(first)
        first.kill(group=True)
        second = stage.start("second")
        second.await_line("waits, the other tables go on")
        await_others(second)
        assert Progress(str(stage.warehouse)).read("shop")[HELD].checkpoint_ts == at_ts - 1
        changefeeds = Changefeeds(str(stage.warehouse))

        def told() -> str:
            row = changefeeds.read("shop")
            assert row is not None
            assert row.checkpoint_ts == at_ts - 1
            return row.error if row.state == "warning" and row.error else ""

        await_("it is told", told)
        assert UNKNOWN in told()

        skip, _ = re.findall("`tidelake (ddl [^`]+)`", told())
        main(shlex.split(skip))
        stage.await_checkpoint(last_ts, second)
        second.signal(signal.SIGTERM)
        second.await_exit()
        stage.assert_equal(events)
