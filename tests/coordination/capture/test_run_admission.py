"""Who may take part in a changefeed's `run`, and what becomes of the changefeed in etcd."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from coordination.capture.run_admission import MARGIN_S, RUN, RunAdmission, clean_up
from coordination.errors import ConfigError
from coordination.etcd import keys
from coordination.metadata.changefeed_state import ChangefeedReactorState
from coordination.metadata.lookup import read_changefeed
from coordination.metadata.records import (
    ChangefeedInfo,
    ChangefeedStatus,
    FeedState,
    RunningError,
    TaskPosition,
    dump,
)
from coordination.model import CaptureID, CaptureInfo, ChangefeedID, LeaseID, Revision, Ts
from tests.fakes.fake_clock import FakeClock
from tests.fakes.fake_etcd import FakeEtcd
from tests.own_lines import own_records

SHOP = ChangefeedID("shop")
SCOPE = keys.run_scope("default", SHOP)
TTL_S = 10


def described(**values: Any) -> ChangefeedInfo:
    return ChangefeedInfo(id=SHOP, target_ts=Ts(values.get("target-ts") or 0), config={RUN: values})


class Ground:
    """A changefeed's scope, and the captures that knock."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.etcd = FakeEtcd(self.clock)
        self.leases: dict[str, LeaseID] = {}
        self.joined: list[str] = []

    def register(self, name: str) -> Revision:
        lease = self.leases[name] = self.etcd.grant(1000).id
        info = CaptureInfo(id=CaptureID(name), address=f"at-{name}", version="1", start_timestamp=0)
        key = keys.capture_key(SCOPE, info.id)
        self.etcd.put(key, keys.dump_capture_info(info), lease)
        (found,) = self.etcd.range(key).kvs
        return found.create_revision

    def end(self, name: str) -> None:
        self.etcd.revoke(self.leases[name])

    def admission(self, name: str, info: ChangefeedInfo) -> Admission:
        made = RunAdmission(
            self.etcd,
            SCOPE,
            info,
            ttl_s=TTL_S,
            clock=self.clock,
            on_join=lambda: self.joined.append(name),
        )
        return Admission(made, CaptureID(name), self.register(name))

    @property
    def stored(self) -> ChangefeedReactorState:
        return read_changefeed(self.etcd, SCOPE, keys.ChangefeedName(SHOP))

    def write(self, info: ChangefeedInfo) -> None:
        self.etcd.put(keys.changefeed_info_key(SCOPE, info.name), dump(info))


class Admission:
    def __init__(self, made: RunAdmission, name: CaptureID, registered: Revision) -> None:
        self._made, self._name, self._registered = made, name, registered

    def ask(self) -> bool:
        return self._made(self._name, self._registered)


@pytest.fixture
def ground() -> Ground:
    return Ground()


def test_who_is_alone_begins_anew_with_its_own_arguments(ground: Ground) -> None:
    assert ground.admission("one", described(**{"target-ts": 5})).ask()
    ground.end("one")
    before = ground.stored
    error = RunningError(message="it broke")
    ground.write(replace(before.known_info, state=FeedState.FAILED, error=error))
    status_key = keys.changefeed_status_key(SCOPE, before.known_info.name)
    ground.etcd.put(status_key, dump(ChangefeedStatus(checkpoint_ts=Ts(4))))
    position_key = keys.task_position_key(SCOPE, CaptureID("one"), before.known_info.name)
    ground.etcd.put(position_key, dump(TaskPosition(error=error)))

    assert ground.admission("two", described(**{"target-ts": 9})).ask()

    after = ground.stored
    assert (after.known_info.target_ts, after.known_info.state, after.known_info.error) == (
        9,
        FeedState.NORMAL,
        None,
    )
    assert after.known_info.epoch > before.known_info.epoch
    assert after.status is not None
    assert after.status.checkpoint_ts == 0  # Delta's counts
    assert after.schedule is not None
    assert (after.schedule.launches, after.schedule.owner) == (0, None)
    assert ground.etcd.range(position_key).kvs == ()
    assert ground.joined == []


def test_who_comes_second_joins_with_the_same_arguments(ground: Ground) -> None:
    assert ground.admission("one", described(**{"target-ts": 5})).ask()
    epoch = ground.stored.known_info.epoch
    assert ground.admission("two", described(**{"target-ts": 5})).ask()
    assert ground.stored.known_info.epoch == epoch
    assert ground.joined == ["two"]


def test_others_arguments_are_waited_out_for_as_long_as_the_dead_may_seem_to_live(
    ground: Ground,
) -> None:
    ground.admission("one", described(**{"target-ts": 5})).ask()
    two = ground.admission("two", described(**{"target-ts": 9}))
    assert not two.ask()
    ground.clock.advance(TTL_S)
    assert not two.ask()
    ground.clock.advance(MARGIN_S)
    says = "by capture one at at-one: target-ts is 5 there and 9 here"
    with pytest.raises(ConfigError, match=says) as said:
        two.ask()
    assert "\n" not in str(said.value)
    assert ground.stored.known_info.target_ts == 5

    three = ground.admission("three", described(**{"target-ts": 9}))
    assert not three.ask()
    ground.end("one")
    ground.end("two")
    assert three.ask()
    assert ground.stored.known_info.target_ts == 9


def test_of_two_that_start_at_one_moment_the_first_goes_first(ground: Ground) -> None:
    one = ground.admission("one", described(**{"target-ts": 5}))
    two = ground.admission("two", described(**{"target-ts": 5}))
    assert not two.ask()  # nothing is there yet: the first is about to
    assert one.ask()
    assert two.ask()
    assert ground.joined == ["two"]


def test_what_is_over_is_left_by_the_others_first(ground: Ground) -> None:
    one = ground.admission("one", described())
    one.ask()
    ground.write(replace(ground.stored.known_info, state=FeedState.FAILED))
    two = ground.admission("two", described())
    assert not two.ask()
    ground.end("one")
    assert two.ask()
    assert ground.stored.known_info.state is FeedState.NORMAL


def test_a_capture_whose_key_is_gone_begins_nothing(ground: Ground) -> None:
    one = ground.admission("one", described())
    ground.end("one")
    with pytest.raises(Exception, match="one"):
        one.ask()


def test_of_a_finished_changefeed_nothing_is_left(ground: Ground) -> None:
    info = described()
    ground.admission("one", info).ask()
    clean_up(ground.etcd, SCOPE)
    ground.end("one")
    clean_up(ground.etcd, SCOPE)
    assert ground.stored.known_info.state is FeedState.NORMAL  # it has not finished
    ground.write(replace(ground.stored.known_info, state=FeedState.FINISHED))
    two = ground.register("two")
    clean_up(ground.etcd, SCOPE)
    assert ground.stored.known_info.state is FeedState.FINISHED  # somebody is there
    assert two
    ground.end("two")
    clean_up(ground.etcd, SCOPE)
    assert ground.etcd.range(f"/tidelake/{SCOPE}/", prefix=True).kvs == ()


def test_who_joins_only_the_dead_says_whom_it_waits_for_and_how_long(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    """As a process that is started again after a kill; beside a living one it joins that."""
    caplog.set_level(logging.INFO)
    first = ground.admission("first", described())
    assert first.ask()
    ground.admission("other", described())
    for alive, waits, joins in (
        ((), "capture first at at-first, capture other at at-other", None),
        (("at-other",), "capture first at at-first,", "capture other at at-other"),
        (("at-other", "at-first"), None, "capture first at at-first, capture other at at-other"),
    ):
        caplog.clear()
        again = RunAdmission(
            ground.etcd, SCOPE, described(), ttl_s=TTL_S, clock=ground.clock,
            is_answered=alive.__contains__,
        )  # fmt: skip
        assert again(CaptureID("again"), ground.register("again"))
        ground.end("again")
        said = {"WARNING": None, "INFO": None} | {
            each.levelname: each.getMessage() for each in own_records(caplog)
        }
        for level, expected in (("WARNING", waits), ("INFO", joins)):
            assert (said[level] is None) == (expected is None), said
            assert expected is None or expected in str(said[level])
        assert waits is None or "waits for up to 12 s: nobody answers for" in str(said["WARNING"])
