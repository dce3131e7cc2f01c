"""Claiming a term, saving under it, and being refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable

from coordination.errors import Fenced, Stop, TermRefused, TidelakeError
from coordination.model import Ownership
from sinks.control.changefeeds import (
    SCHEMA,
    ChangefeedRow,
    Changefeeds,
    RecordedWatermark,
)
from tests.own_lines import own_records

INITIAL = ChangefeedRow(changefeed_id="shop", start_ts=10, checkpoint_ts=10, resolved_ts=10)
TTL_S = 10.0


class ManualClock:
    """Time passes only by waiting; `each_wait` is what others do meanwhile."""

    def __init__(self, each_wait: Callable[[], None] = lambda: None) -> None:
        self.now = 100.0
        self.each_wait = each_wait

    def monotonic(self) -> float:
        return self.now

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        self.now += timeout_s
        self.each_wait()
        return event.is_set()


def owner(capture: str = "c1", *, etcd: str = "etcd-1", revision: int = 5) -> Ownership:
    return Ownership(
        capture_id=capture,
        epoch=f"epoch-{capture}",
        etcd_cluster_id=etcd,
        election_revision=revision,
    )


def claim(
    changefeeds: Changefeeds, ownership: Ownership, initial: ChangefeedRow = INITIAL
) -> ChangefeedRow:
    return changefeeds.claim(initial, ownership, ttl_s=TTL_S, stop=threading.Event())


def test_nothing_is_there_before_the_first_claim_and_reading_creates_nothing(
    tmp_path: Path,
) -> None:
    changefeeds = Changefeeds(str(tmp_path))
    assert changefeeds.read("shop") is None
    assert changefeeds.read_all() == []
    assert list(tmp_path.iterdir()) == []


def test_the_first_claim_writes_the_initial_row_with_term_1(tmp_path: Path) -> None:
    changefeeds = Changefeeds(str(tmp_path))
    row = claim(changefeeds, owner())
    assert (row.term, row.capture_id, row.epoch) == (1, "c1", "epoch-c1")
    assert (row.etcd_cluster_id, row.owner_revision) == ("etcd-1", 5)
    assert changefeeds.read("shop") == row


def test_a_row_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    changefeeds = Changefeeds(str(tmp_path))
    row = replace(
        claim(changefeeds, owner()),
        incarnation=2,
        target_ts=2**62,
        state="rewinding",
        checkpoint_ts=20,
        resolved_ts=30,
        max_published_ts=40,
        source_positions={"shop/0": 1, "täble/11": 2**60},
        read_positions={"shop/0": 3, "shop/1": 0},
        end_positions={"shop/0": 9, "shop/1": 0},
        messages_behind=6,
        messages_per_s=1.5,
        time_left_s=4.0,
        watermarks={"shop/0": RecordedWatermark(ts=449, position=0)},
        source_identities={"shop/0": "AbC-_"},
        fingerprint="f" * 64,
        error="it hurts",
    )
    changefeeds.save(row)
    stored = Changefeeds(str(tmp_path)).read("shop")
    assert stored is not None
    assert stored.updated_at > row.updated_at
    assert stored == replace(row, updated_at=stored.updated_at)


def test_a_later_claim_resumes_the_stored_row(tmp_path: Path) -> None:
    first, second = Changefeeds(str(tmp_path)), Changefeeds(str(tmp_path))
    first.save(replace(claim(first, owner()), checkpoint_ts=77, state="running"))
    row = claim(second, owner("c2", revision=6), replace(INITIAL, start_ts=1, checkpoint_ts=1))
    assert (row.term, row.start_ts, row.checkpoint_ts, row.state) == (2, 10, 77, "running")
    assert (row.capture_id, row.owner_revision) == ("c2", 6)


def test_the_overtaken_owner_is_refused_with_a_sentence(tmp_path: Path) -> None:
    zombie, successor = Changefeeds(str(tmp_path)), Changefeeds(str(tmp_path))
    old = claim(zombie, owner())
    new = claim(successor, owner("c2", revision=6))
    with pytest.raises(TermRefused) as caught:
        zombie.save(old)
    for part in ("changefeed shop", "our term 1", "term 2", "stands by"):
        assert part in str(caught.value)
    assert successor.read("shop") == new


def test_a_row_that_vanished_refuses_to_be_saved(tmp_path: Path) -> None:
    changefeeds = Changefeeds(str(tmp_path))
    claim(changefeeds, owner())
    with pytest.raises(TermRefused, match=r"changefeed other: .* does not hold our term 1"):
        changefeeds.save(replace(INITIAL, changefeed_id="other", term=1))


def test_an_earlier_election_of_the_same_etcd_may_not_claim_while_the_later_one_lives(
    tmp_path: Path,
) -> None:
    changefeeds = Changefeeds(str(tmp_path))
    row = claim(changefeeds, owner(revision=5))
    late = Changefeeds(str(tmp_path), clock=ManualClock(lambda: changefeeds.save(row)))
    with pytest.raises(TermRefused, match=r"revision 4.*older than that of term 1 \(revision 5"):
        claim(late, owner("late", revision=4))
    assert claim(changefeeds, owner(revision=5)).term == 2  # the same owner starts its stream anew


def test_an_etcd_that_was_restored_from_a_backup_goes_on_when_the_row_stands_still(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Revisions begin again where the backup was, and its changefeed may be as it once was."""
    first = Changefeeds(str(tmp_path))
    resumed = replace(INITIAL, start_id="etcd-1/7/99", start_ts=99, checkpoint_ts=99)
    first.save(replace(claim(first, owner(revision=1010), resumed), checkpoint_ts=120))
    clock = ManualClock()
    restored = Changefeeds(str(tmp_path), clock=clock)
    of_the_backup = replace(INITIAL, start_id="etcd-1/4/10")
    row = claim(restored, owner("c2", revision=905), of_the_backup)
    assert (row.term, row.owner_revision, row.checkpoint_ts) == (2, 905, 120)
    assert row.start_id == "etcd-1/4/10", "where it is to start was carried out before: no rewind"
    assert TTL_S < clock.now - 100.0 < 1.5 * TTL_S
    (line,) = [each.getMessage() for each in own_records(caplog) if each.levelname == "WARNING"]
    assert "revision 1010" in line
    assert "revision 905" in line
    assert "restored from a backup" in line
    assert claim(restored, owner("c3", revision=906)).term == 3  # nobody waits any more


def test_an_etcd_that_was_restored_is_told_of_where_nobody_has_to_be_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All captures had been stopped in order."""
    first = Changefeeds(str(tmp_path))
    first.save(replace(claim(first, owner(revision=1010)), state="stopped"))
    clock = ManualClock()
    assert claim(Changefeeds(str(tmp_path), clock=clock), owner("c2", revision=905)).term == 2
    assert clock.now == 100.0
    (line,) = [each.getMessage() for each in own_records(caplog) if each.levelname == "WARNING"]
    assert "revision 1010" in line
    assert "etcd was restored from a backup" in line
    assert claim(first, owner("c3", revision=906)).term == 3
    assert len(own_records(caplog)) == 1


def test_whoever_waited_is_asked_whether_it_is_trusted_still(tmp_path: Path) -> None:
    claim(Changefeeds(str(tmp_path)), owner(revision=5))
    clock = ManualClock()

    def check() -> None:
        if clock.now > 100.0:
            raise Fenced("trust has lapsed meanwhile")

    late = Changefeeds(str(tmp_path), clock=clock)
    with pytest.raises(Fenced):
        late.claim(
            INITIAL, owner("late", revision=4), ttl_s=TTL_S, stop=threading.Event(), check=check
        )


def test_another_etcd_waits_until_the_row_stands_still(tmp_path: Path) -> None:
    before = claim(Changefeeds(str(tmp_path)), owner(revision=500))
    clock = ManualClock()
    row = claim(Changefeeds(str(tmp_path), clock=clock), owner("c2", etcd="etcd-2", revision=1))
    assert (row.term, row.etcd_cluster_id, row.owner_revision) == (2, "etcd-2", 1)
    assert TTL_S < clock.now - 100.0 < 1.5 * TTL_S
    with pytest.raises(TermRefused):
        Changefeeds(str(tmp_path)).save(before)


def test_a_wait_starts_over_when_the_row_is_refreshed(tmp_path: Path) -> None:
    other = Changefeeds(str(tmp_path))
    row = claim(other, owner())
    looks = []

    def refresh_for_a_while() -> None:
        looks.append(1)
        if len(looks) == 9:
            other.save(row)

    clock = ManualClock(refresh_for_a_while)
    assert claim(Changefeeds(str(tmp_path), clock=clock), owner(etcd="etcd-2")).term == 2
    assert clock.now - 100.0 > 1.8 * TTL_S


def test_two_etcds_on_one_warehouse_end_with_a_line(tmp_path: Path) -> None:
    other = Changefeeds(str(tmp_path))
    row = claim(other, owner("alive"))
    clock = ManualClock(lambda: other.save(row))
    with pytest.raises(TidelakeError, match="two etcds on one warehouse") as caught:
        claim(Changefeeds(str(tmp_path), clock=clock), owner(etcd="etcd-2"))
    assert "capture alive (term 1) of etcd cluster etcd-1" in str(caught.value)
    assert clock.now - 100.0 < 3.5 * TTL_S
    assert not isinstance(caught.value, TermRefused)  # trying again would not help


@pytest.mark.parametrize(
    ("first", "second", "sentence"),
    [
        ("etcd/uuid", "etcd/uuid/run-shop", "a cluster .* replicates it, capture alive .*remove"),
        ("etcd/uuid/run-shop", "etcd/uuid", "a `tidelake run` replicates it, capture .*: stop it"),
    ],
)
def test_a_cluster_and_a_run_do_not_take_terms_from_each_other(
    tmp_path: Path, first: str, second: str, sentence: str
) -> None:
    """Though the later election of one etcd is the newer one: they would do so for ever."""
    other = Changefeeds(str(tmp_path))
    row = claim(other, owner("alive", etcd=first, revision=5))
    clock = ManualClock(lambda: other.save(row))
    with pytest.raises(TidelakeError, match=sentence):
        claim(Changefeeds(str(tmp_path), clock=clock), owner(etcd=second, revision=9))
    assert Changefeeds(str(tmp_path)).read("shop").term == row.term  # type: ignore[union-attr]


def test_another_owner_of_the_other_etcd_is_waited_for_anew(tmp_path: Path) -> None:
    other = Changefeeds(str(tmp_path))
    claim(other, owner())
    looks = []

    def take_over_late() -> None:
        looks.append(1)
        if len(looks) == 8:
            claim(other, owner("c3", revision=9))

    clock = ManualClock(take_over_late)
    assert claim(Changefeeds(str(tmp_path), clock=clock), owner(etcd="etcd-2")).term == 3


@pytest.mark.parametrize("state", ["finished", "stopped", "failed"])
def test_a_row_that_ended_is_not_waited_for(tmp_path: Path, state) -> None:
    other = Changefeeds(str(tmp_path))
    other.save(replace(claim(other, owner()), state=state))
    clock = ManualClock()
    assert claim(Changefeeds(str(tmp_path), clock=clock), owner(etcd="etcd-2")).term == 2
    assert clock.now == 100.0


def test_waiting_ends_when_the_row_ends(tmp_path: Path) -> None:
    other = Changefeeds(str(tmp_path))
    running = claim(other, owner())

    def stop_the_other() -> None:
        if clock.now > 102.0 and not done:
            done.append(other.save(replace(running, state="stopped")))

    done: list[None] = []
    clock = ManualClock(stop_the_other)
    assert claim(Changefeeds(str(tmp_path), clock=clock), owner(etcd="etcd-2")).term == 2
    assert clock.now - 100.0 < TTL_S / 2


def test_waiting_ends_when_asked_to_stop(tmp_path: Path) -> None:
    claim(Changefeeds(str(tmp_path)), owner())
    stop = threading.Event()
    changefeeds = Changefeeds(str(tmp_path), clock=ManualClock(stop.set))
    with pytest.raises(Stop):
        changefeeds.claim(INITIAL, owner(etcd="etcd-2"), ttl_s=TTL_S, stop=stop)


def test_a_refresh_shows_though_the_clock_went_back(tmp_path: Path) -> None:
    changefeeds = Changefeeds(str(tmp_path))
    ahead = datetime(2999, 1, 1, tzinfo=UTC)  # written by a machine whose clock runs far ahead
    row = claim(changefeeds, owner(), replace(INITIAL, updated_at=ahead))
    changefeeds.save(row)
    touched = changefeeds.read("shop")
    assert touched is not None
    assert touched.updated_at > row.updated_at > ahead


def test_a_checkpoint_falls_only_with_a_new_incarnation(tmp_path: Path) -> None:
    changefeeds = Changefeeds(str(tmp_path))
    row = replace(claim(changefeeds, owner()), checkpoint_ts=50)
    changefeeds.save(row)
    with pytest.raises(TidelakeError, match=r"back from \(1, 50\) to \(1, 49\)"):
        changefeeds.save(replace(row, checkpoint_ts=49))
    changefeeds.save(replace(row, checkpoint_ts=20, incarnation=2, state="rewinding"))
    with pytest.raises(TidelakeError, match="refusing"):
        changefeeds.save(row)


def test_changefeeds_live_side_by_side(tmp_path: Path) -> None:
    shop, crm = Changefeeds(str(tmp_path)), Changefeeds(str(tmp_path))
    of_shop = claim(shop, owner())
    of_crm = claim(crm, owner("c9", revision=2), replace(INITIAL, changefeed_id="crm"))
    assert (of_shop.term, of_crm.term) == (1, 1)
    for ts in range(20, 25):
        shop.save(replace(of_shop, checkpoint_ts=ts))
        crm.save(replace(of_crm, checkpoint_ts=ts * 2))
    stored = {row.changefeed_id: row.checkpoint_ts for row in shop.read_all()}
    assert stored == {"crm": 48, "shop": 24}


def test_deltalake_reads_the_documented_columns(tmp_path: Path) -> None:
    claim(Changefeeds(str(tmp_path)), owner())
    table = DeltaTable(str(tmp_path / "_tidelake" / "changefeeds"))
    assert table.to_pyarrow_table().schema.names == SCHEMA.names
    assert all(column.metadata["comment"] for column in table.schema().fields)
    assert table.protocol().min_reader_version == 1
