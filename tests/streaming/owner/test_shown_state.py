"""What a changefeed that nobody runs says of itself in Delta, and when it may."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from conf.settings import DeltaSink
from coordination.metadata.records import FeedState
from coordination.model import CaptureID, ChangefeedID, Ownership, ProcessorEpoch, Revision
from coordination.ports import ShownState
from coordination.trust.clock import SystemClock
from coordination.trust.fence import CaptureIdentity, Fence, Trust
from sinks.control.changefeeds import ChangefeedRow, Changefeeds
from sinks.control.progress import Progress, ProgressRow
from sinks.storage.errors import StorageAway
from streaming.owner.shown_state import StateUpdate, StateUpdates
from tests.own_lines import own_records

FEED = ChangefeedID("shop")
WHY = "DDL at commit-ts 40 is not supported yet"
PENDING = ShownState(state=FeedState.PENDING, code="CDC:ErrOwnerUnknown", message=WHY)


def ownership(revision: int = 5, etcd: str = "etcd-1") -> Ownership:
    return Ownership(
        capture_id=CaptureID("c"),
        epoch=ProcessorEpoch("e"),
        etcd_cluster_id=etcd,
        election_revision=Revision(revision),
    )


@dataclass
class Place:
    """A warehouse where an owner has been."""

    warehouse: str

    def __post_init__(self) -> None:
        self.woken = threading.Event()
        self.changefeeds = Changefeeds(self.warehouse)
        first = ChangefeedRow(changefeed_id=FEED, start_ts=1, checkpoint_ts=7, resolved_ts=9)
        row = self.changefeeds.claim(first, ownership(), ttl_s=1, stop=threading.Event())
        self.changefeeds.save(replace(row, state="running"))
        self.progress = Progress(self.warehouse)
        self.progress.claim(FEED, row.term)
        table = ProgressRow(
            changefeed_id=FEED,
            incarnation=1,
            schema_name="shop",
            table_name="a",
            generation=1,
            state="replicating",
            checkpoint_ts=7,
            resolved_ts=7,
            capture_id="c",
            epoch="e",
            fence=row.term << 32,
        )
        self.progress.advance([table], row.term)

    def update(self, shown: ShownState = PENDING, owner: Ownership | None = None) -> StateUpdate:
        owner = owner or ownership()
        fence = Fence(SystemClock())
        fence.open(owner, time.monotonic() + 100)
        identity = CaptureIdentity(capture_id=owner.capture_id, epoch=owner.epoch, address="")
        return StateUpdate(
            changefeed_id=FEED,
            sink=DeltaSink(warehouse=self.warehouse),
            ownership=owner,
            trust=Trust(fence, identity),
            shown=shown,
            wake=self.woken.set,
        )

    @property
    def shown(self) -> tuple[str, str | None, set[str]]:
        row = self.changefeeds.read(FEED)
        assert row is not None
        assert row.checkpoint_ts == 7
        tables = self.progress.read(FEED).values()
        return row.state, row.error, {each.state for each in tables}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(str(tmp_path))


def test_state_and_error_are_those_of_etcd_and_the_tables_are_stopped(place: Place) -> None:
    place.update().write()
    assert place.shown == ("pending", WHY, {"stopped"})
    row = place.changefeeds.read(FEED)
    assert row is not None
    assert row.error_code == "CDC:ErrOwnerUnknown"
    place.update(ShownState(state=FeedState.STOPPED, message=WHY)).write()
    assert place.shown == ("stopped", WHY, {"stopped"})


def test_a_later_owner_and_another_etcd_have_the_word(place: Place) -> None:
    place.update(owner=ownership(revision=4)).write()
    place.update(owner=ownership(etcd="etcd-2")).write()
    assert place.shown == ("running", None, {"replicating"})
    place.update(owner=ownership(revision=6)).write()
    assert place.shown == ("pending", WHY, {"stopped"})


def test_it_is_said_as_soon_as_storage_lets_it(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    tries: list[int] = []
    show = Changefeeds.show

    def away(self: Changefeeds, *args: object, **more: object) -> object:
        tries.append(1)
        if len(tries) < 4:
            raise StorageAway("cannot save: the disk is full")
        return show(self, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Changefeeds, "show", away)
    updates = StateUpdates(again_s=0.02)
    updates.put(place.update())
    for _ in range(500):
        if place.shown[2] == {"stopped"}:
            break
        time.sleep(0.02)
    assert place.shown == ("pending", WHY, {"stopped"})
    assert len(tries) == 4
    (said,) = [each.getMessage() for each in own_records(caplog) if each.levelname == "WARNING"]
    assert "changefeed shop is pending" in said
    assert "the disk is full" in said


def test_what_is_withdrawn_is_not_said(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = threading.Semaphore(0)

    def away(self: StateUpdate) -> None:  # noqa: ARG001
        tries.release()
        raise StorageAway("cannot save: the disk is full")

    monkeypatch.setattr(StateUpdate, "write", away)
    updates = StateUpdates(again_s=0.01)
    updates.put(place.update())
    assert tries.acquire(timeout=60)
    updates.withdraw(FEED)
    time.sleep(0.1)
    while tries.acquire(blocking=False):
        pass
    assert not tries.acquire(timeout=0.2)
