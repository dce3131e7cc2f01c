"""Whether a leader pauses a changefeed for each of its orders, which are stood in for."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coordination.metadata.changefeed_operator import ChangefeedOperator
from coordination.metadata.feed_state import known_state
from coordination.metadata.lookup import read_changefeed
from coordination.metadata.records import ChangefeedInfo, FeedState
from coordination.model import ChangefeedID, TableName, Ts
from sinks.control.reloads import Reload, Reloads
from streaming.changefeed.settings_in_etcd import changefeed_config
from streaming.spans import cluster_reloads
from streaming.spans.cluster_reloads import ClusterReloads
from streaming.spans.copies import reload
from tests.fakes.fake_clock import FakeClock
from tests.fakes.fake_etcd import FakeEtcd
from tests.own_lines import own_text

CLUSTER, FEED = "reloads", ChangefeedID("shop")


class Rig:
    """A cluster's changefeed; ``carried`` is called in the place of each copy."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, carried: Callable[[Rig, str], None]
    ) -> None:
        self.client, self._folder = FakeEtcd(FakeClock()), folder
        config = changefeed_config({}, delta_uri=f"delta://{folder}/lake")
        uri = "mysql://root@127.0.0.1:1/"
        info = ChangefeedInfo(id=FEED, sink_uri=uri, config=config, start_ts=Ts(1))
        self.name, self.operator = info.name, ChangefeedOperator(self.client, CLUSTER)
        self.operator.create(info)
        self._orders = Reloads(f"{folder}/lake")
        rig = self

        class Carried:
            def __init__(self, _: object, order: Reload) -> None:
                self._table = order.table_name

            def run(self) -> int:
                carried(rig, self._table)
                return 0

            def close(self) -> None:
                pass

        monkeypatch.setattr(reload, "_OneReload", Carried)
        monkeypatch.setattr(cluster_reloads, "LOOK_EVERY_S", 0.01)

    def state(self) -> FeedState:
        return known_state(read_changefeed(self.client, CLUSTER, self.name).known_info)

    def carry_out(self, *tables: str) -> bool:
        """Orders for these; whether all are over."""
        for table in tables:
            self._orders.order(FEED, TableName("shop", table))
        folder = self._folder / "copy"
        reloads = ClusterReloads(self.client, CLUSTER, lambda _: folder, trusted=lambda: None)
        end_s = time.monotonic() + 10
        try:
            while (is_open := self._orders.next_open(FEED) is not None) and (
                time.monotonic() < end_s
            ):
                time.sleep(0.02)
        finally:
            reloads.close()
        return not is_open


def test_the_changefeed_is_paused_for_each_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, FeedState]] = []
    rig = Rig(tmp_path, monkeypatch, lambda rig, table: seen.append((table, rig.state())))
    assert rig.carry_out("one", "two")
    assert seen == [("one", FeedState.STOPPED), ("two", FeedState.STOPPED)]
    assert rig.state() is FeedState.NORMAL


def test_an_order_is_over_though_its_changefeed_was_removed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else another one of its name would be loaded anew for it."""
    rig = Rig(tmp_path, monkeypatch, lambda rig, _: rig.operator.remove(rig.name))
    assert rig.carry_out("one")


def test_what_fails_again_and_again_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries = []

    def carried(_: Rig, table: str) -> None:
        tries.append(table)
        if len(tries) < 4:
            raise ZeroDivisionError(table)

    assert Rig(tmp_path, monkeypatch, carried).carry_out("one")
    assert len(tries) == 4
    assert own_text(caplog).count("a reload has failed") == 1
