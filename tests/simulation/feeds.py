"""The changefeeds of a world, and its operator: who creates, pauses, resumes, updates and removes
them, and hears no more of etcd than anybody else."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from coordination.errors import TidelakeError
from coordination.etcd import keys
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.changefeed_operator import ChangefeedOperator
from coordination.metadata.records import (
    ChangefeedInfo,
    ChangefeedStatus,
    FeedState,
    ScheduleRow,
    load,
)
from coordination.model import ChangefeedID, Ts
from tests.fakes.fake_source import FakeSource, ts_at
from tests.fakes.fake_warehouse import FakeWarehouse
from tests.simulation.etcd_link import EtcdLink

if TYPE_CHECKING:
    from tests.simulation.world import World

CLUSTER = "sim"
NAME = ChangefeedName(ChangefeedID("shop"))
LATER = "later"  # a field of a changefeed that a later release has made: nobody loses it


class SimFeed:
    """One changefeed: its source and its lake, which outlive it."""

    def __init__(
        self,
        name: ChangefeedName,
        world: World,
        *,
        tables: int,
        may_end: bool,
        quiet_s: float,
    ) -> None:
        self.name = name
        self._world = world
        rng = world.dice(f"feed {name.id}")
        started_at, run_s = world.clock.now_s, world.run_s
        self.source = FakeSource.random(rng, started_at, run_s, tables)
        # Some end of themselves, in the midst of it all.
        ends = rng.random() < 0.2 and may_end
        self.target_ts = ts_at(started_at + run_s * 0.6) if ends else None
        self.sync_interval_ms = 4000 if rng.random() < 0.5 else None
        self.warehouse = FakeWarehouse(
            self.source, self.sync_interval_ms, quiet_s, target_ts=self.target_ts
        )
        self.seen_checkpoint_ts = 0  # the greatest in etcd, of this life
        self.seen_epoch = 0

    @property
    def asked_for(self) -> ChangefeedInfo:
        """From where its tables are on."""
        config = {"enable-sync-point": True, "sync-point-interval": "4s"}
        return ChangefeedInfo(
            id=self.name.id,
            sink_uri="delta:///tmp",
            start_ts=Ts(self.warehouse.checkpoint_ts),
            target_ts=Ts(self.target_ts or 0),
            state=FeedState.NORMAL,
            config=config if self.sync_interval_ms else None,
            unknown={LATER: 1},
        )

    @property
    def info(self) -> ChangefeedInfo | None:
        value = self._world.value(keys.changefeed_info_key(CLUSTER, self.name))
        return None if value is None else load(ChangefeedInfo, value)

    @property
    def status(self) -> ChangefeedStatus | None:
        value = self._world.value(keys.changefeed_status_key(CLUSTER, self.name))
        return None if value is None else load(ChangefeedStatus, value)

    @property
    def row(self) -> ScheduleRow | None:
        value = self._world.value(keys.schedule_key(CLUSTER, self.name))
        return None if value is None else load(ScheduleRow, value)


class SimOperator:
    """What is refused is left alone; what has no answer may come yet."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.link = EtcdLink(world.etcd, rng, world.clock.monotonic)
        world.links.append(self.link)
        self._world = world
        self._changefeeds = ChangefeedOperator(self.link, CLUSTER)

    def create(self, feed: SimFeed) -> bool:
        if feed.info is not None:
            return False
        feed.seen_checkpoint_ts = 0
        return self._try(lambda: self._changefeeds.create(feed.asked_for))

    def pause(self, feed: SimFeed) -> bool:
        return self._try(lambda: self._changefeeds.pause(feed.name))

    def resume(self, feed: SimFeed) -> bool:
        return self._try(lambda: self._changefeeds.resume(feed.name))

    def resume_where_it_is(self, feed: SimFeed) -> bool:
        """With a checkpoint that is told to it."""
        status = feed.status
        return status is not None and self._try(
            lambda: self._changefeeds.resume(feed.name, status.checkpoint_ts)
        )

    def rewind(self, feed: SimFeed, share: float) -> bool:
        """To go on from an earlier checkpoint: known at once, as what follows is judged by it."""
        info, status, self.link.lost_answers = feed.info, feed.status, 0.0
        if info is None or info.state is not FeedState.STOPPED or status is None:
            return False
        begin_ts = feed.source.start_ts
        ts = Ts(begin_ts + int((status.checkpoint_ts - begin_ts) * share))
        if not self._try(lambda: self._changefeeds.resume(feed.name, ts)):
            return False
        feed.seen_checkpoint_ts = 0
        return True

    def update(self, feed: SimFeed, target_ts: int | None) -> bool:
        """A later target, or another sorter, which is only stored. That is known at once: the
        lake must know where it is to end."""
        info, self.link.lost_answers = feed.info, 0.0
        if info is None:
            return False
        wanted = replace(info, target_ts=Ts(target_ts or 0), sort_dir=f"{info.sort_dir}x")
        if not self._try(lambda: self._changefeeds.update(feed.name, wanted)):
            return False
        feed.target_ts = target_ts
        feed.warehouse.aim_at(target_ts)
        return True

    def remove(self, feed: SimFeed) -> bool:
        return self._try(lambda: self._changefeeds.remove(feed.name))

    def settle(self) -> None:
        """Whatever was asked for and is under way happens now, and all that is there runs."""
        self.link.lost_answers = 0.0
        self.link.land(at_once=True)
        for feed in self._world.feeds.values():
            if feed.info is not None and feed.info.state in (FeedState.STOPPED, FeedState.FAILED):
                self.resume(feed)

    def _try(self, what: Callable[[], object]) -> bool:
        try:
            what()
        except TidelakeError:
            return False
        return True
