"""Whether a leader pauses a changefeed for each of its orders, which are stood in for."""

from __future__ import annotations

import time
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

CLUSTER, FEED = "reloads", ChangefeedID("shop")


def test_the_changefeed_is_paused_for_each_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, client = tmp_path / "lake", FakeEtcd(FakeClock())
    config = changefeed_config({}, delta_uri=f"delta://{lake}")
    uri = "mysql://root@127.0.0.1:1/"
    info = ChangefeedInfo(id=FEED, sink_uri=uri, config=config, start_ts=Ts(1))
    ChangefeedOperator(client, CLUSTER).create(info)
    orders = Reloads(str(lake))
    for table in ("one", "two"):
        orders.order(FEED, TableName("shop", table))

    def state() -> FeedState:
        return known_state(read_changefeed(client, CLUSTER, info.name).known_info)

    seen: list[tuple[str, FeedState]] = []

    class Carried:
        def __init__(self, _: object, order: Reload) -> None:
            self._table = order.table_name

        def run(self) -> int:
            seen.append((self._table, state()))
            return 0

        def close(self) -> None:
            pass

    monkeypatch.setattr(reload, "_OneReload", Carried)
    monkeypatch.setattr(cluster_reloads, "LOOK_EVERY_S", 0.01)
    reloads = ClusterReloads(client, CLUSTER, lambda _: tmp_path / "copy", trusted=lambda: None)
    try:
        end_s = time.monotonic() + 10
        while orders.next_open(FEED) is not None and time.monotonic() < end_s:
            time.sleep(0.02)
    finally:
        reloads.close()
    assert seen == [("one", FeedState.STOPPED), ("two", FeedState.STOPPED)]
    assert state() is FeedState.NORMAL
