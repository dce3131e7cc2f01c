"""Whether a changefeed can go on in another log, and where: on logs that are made at random."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from coordination.model import Ts
from streaming.source.binlog.failover.decision import (
    Known,
    Lags,
    Standing,
    known_of,
    places,
    refuse_beyond,
    refuse_otherwise,
    refuse_unfit,
)
from streaming.source.binlog.walk.named_groups import NamedGroups
from streaming.source.contract import SourceLost
from streaming.source.resolved.commit_clock import Pin, numbered, with_pins
from streaming.source.resolved.gtid_sets import GtidSet, Trail, parse_gtids

NOW_MS = 1_700_000_000_000
LATEST = Ts((NOW_MS + 1_000_000) << 18)
UUIDS = ("5dc71f0e-e992-11f1-a644-02fc00000001", "fe528ace-e994-11f1-be49-02fc00000001")


@dataclass(frozen=True)
class Transaction:
    source: str
    number: int
    own_ms: int


@dataclass
class Log:
    """One server's log: each transaction with the place where it ends."""

    transactions: list[Transaction]
    ends: list[int]
    begin: int = 4

    @classmethod
    def of(cls, transactions: Sequence[Transaction], dice: random.Random) -> Log:
        ends = np.cumsum([dice.randint(1, 90) for _ in transactions]) + 4
        return cls(list(transactions), ends.tolist())

    def named(self, pins: Sequence[Pin] = (), since: int = 0, after: int = 0) -> NamedGroups:
        """Those behind the first ``since``, numbered from the number ``after`` on."""
        sources = tuple(dict.fromkeys(each.source for each in self.transactions))
        some = self.transactions[since:]
        begins = np.array([self.begin, *self.ends][since:-1], np.int64)
        own = np.array([each.own_ms for each in some], np.int64)
        stamps = numbered(begins, own, after=after, pins=pins, latest=LATEST)
        return NamedGroups(
            sources,
            np.array([sources.index(each.source) for each in some], np.int64),
            np.array([each.number for each in some], np.int64),
            np.array(self.ends[since:], np.int64),
            stamps.commit_ts,
        )

    def executed(self) -> GtidSet:
        found = self.named().of(len(self.transactions))
        assert found is not None
        return found


def written(dice: random.Random, count: int, *, is_mariadb: bool) -> list[Transaction]:
    numbers: dict[str, int] = {}
    found, ms = [], NOW_MS
    for _ in range(count):
        if is_mariadb:
            source = dice.choice(("0-1", "0-2", "3-1"))
            counter = source.partition("-")[0]
        else:
            source = counter = dice.choice(UUIDS)
        numbers[counter] = numbers.get(counter, 0) + 1
        ms += dice.choice((0, 0, 1, 400, -300))
        found.append(Transaction(source, numbers[counter], ms))
    return found


def pins_of(log: Log, dice: random.Random) -> tuple[Pin, ...]:
    """Those of a reading of this log, with an idle log's among them."""
    pins: tuple[Pin, ...] = (Pin(log.begin, 0, trail=Trail(GtidSet())),)
    for nth, end in enumerate(log.ends):
        if dice.random() < 0.4:
            named = log.named(pins)
            pin = Pin(end, int(named.commit_ts[nth]), trail=named.after(Trail(GtidSet()), nth + 1))
            if dice.random() < 0.3:
                pin = pin._replace(above_ts=pin.ts + dice.choice((5, 100 << 18)), is_needed=True)
            pins = with_pins(pins, [pin])
    return pins


def moved(known: Known, log: Log) -> tuple[tuple[Pin, ...], NamedGroups]:
    """The pins in the other log, and its transactions behind the first one with their numbers."""
    sets = [each.gtids for each in (known.start, *known.later) if each.gtids is not None]
    found = places(sets, GtidSet(), log.named(), begin=log.begin, address="b:1")
    pins = with_pins(
        [
            pin._replace(position=at)
            for pin, at in zip((known.start, *known.later), found, strict=True)
        ],
        (),
    )
    since = log.named().before(pins[0].position)
    return pins, log.named(pins, since, pins[0].floor_ts)


def standing(log: Log, lost: GtidSet | None = None) -> Standing:
    return Standing(address="b:1", executed=log.executed(), lost=lost or GtidSet())


@pytest.mark.seeds(20)
@pytest.mark.parametrize("is_mariadb", [True, False])
def test_a_replica_gives_the_same_numbers(is_mariadb: bool, seed: int) -> None:
    dice = random.Random(seed)
    transactions = written(dice, dice.randint(2, 40), is_mariadb=is_mariadb)
    primary, replica = Log.of(transactions, dice), Log.of(transactions, dice)
    pins = pins_of(primary, dice)
    low_water = dice.choice([primary.begin, *primary.ends])
    known = known_of(pins, low_water, "b:1")
    assert known.start.position <= low_water
    refuse_unfit(known, standing(replica))
    there, again = moved(known, replica)
    refuse_otherwise("b:1", there, again)
    first = primary.named(pins)
    skipped = len(transactions) - len(again)
    assert again.commit_ts.tolist() == first.commit_ts[skipped:].tolist()
    assert low_water >= (primary.ends[skipped - 1] if skipped else primary.begin)
    reached_ts = dice.choice(first.commit_ts.tolist())
    refuse_beyond("b:1", reached_ts, known, again)


@pytest.mark.seeds(20)
@pytest.mark.parametrize("is_mariadb", [True, False])
@pytest.mark.parametrize("fault", ["lacks", "errant", "order", "purged", "time"])
def test_another_history_is_never_taken_for_the_same(
    is_mariadb: bool, fault: str, seed: int
) -> None:
    """Either it is refused, or every transaction that was read has its number."""
    dice = random.Random(seed)
    transactions = written(dice, dice.randint(4, 30), is_mariadb=is_mariadb)
    primary = Log.of(transactions, dice)
    pins = pins_of(primary, dice)
    known = known_of(pins, dice.choice([primary.begin, *primary.ends]), "b:1")
    at = dice.randrange(len(transactions))
    changed = with_fault(fault, transactions, at, is_mariadb=is_mariadb)
    lost = Log.of(changed[:at], dice).executed() if fault == "purged" else None
    replica = Log.of(changed, dice)
    try:
        refuse_unfit(known, standing(replica, lost))
        there, again = moved(known, replica)
        refuse_otherwise("b:1", there, again)
    except SourceLost:
        return
    except Lags:
        assert fault == "lacks"
        return
    assert there[0].gtids == known.start.gtids
    numbers = primary.named(pins).commit_ts.tolist()
    read = primary.named().before(known.last.position)
    skipped = len(changed) - len(again)
    names = [[(one.source, one.number) for one in each] for each in (changed, transactions)]
    assert names[0][skipped:read] == names[1][skipped:read]
    assert again.commit_ts.tolist()[: read - skipped] == numbers[skipped:read]


def same_domain(two: Sequence[Transaction]) -> bool:
    """MariaDB never changes the order of these."""
    return len({each.source.partition("-")[0] for each in two}) == 1


def with_fault(
    fault: str, transactions: Sequence[Transaction], at: int, *, is_mariadb: bool
) -> list[Transaction]:
    changed = list(transactions)
    if fault == "lacks":
        del changed[at:]
    elif fault == "errant":
        source = "7-9" if is_mariadb else "ffffffff-e992-11f1-a644-02fc00000001"
        changed.insert(at, Transaction(source, 1, NOW_MS))
    elif fault == "order" and at and not (is_mariadb and same_domain(changed[at - 1 : at + 1])):
        changed[at - 1], changed[at] = changed[at], changed[at - 1]
    elif fault == "time":
        changed[at] = replace(changed[at], own_ms=changed[at].own_ms + 900)
    return changed


def test_what_is_refused_says_what_to_do() -> None:
    gtids = parse_gtids("0-1-9")
    known = Known(
        start=Pin(5, 5, trail=Trail(parse_gtids("0-1-5"))), later=(Pin(9, 9, trail=Trail(gtids)),)
    )
    fit = Standing(address="b:1", executed=gtids, lost=parse_gtids("0-1-5"))
    refuse_unfit(known, fit)
    with pytest.raises(Lags, match=r"lacks transactions that were read .*: 0-1-9. Wait"):
        refuse_unfit(known, replace(fit, executed=parse_gtids("0-1-8")))
    with pytest.raises(Lags, match="lacks"):
        refuse_unfit(known, replace(fit, executed=parse_gtids("0-2-9")))
    with pytest.raises(SourceLost, match=r"deleted what is needed of its binlog.*: 0-1-6"):
        refuse_unfit(known, replace(fit, lost=parse_gtids("0-1-6")))
    with pytest.raises(SourceLost, match=r"gtid_mode = OFF.*Set gtid_mode = ON"):
        refuse_unfit(known, replace(fit, has_gtids=False))
    with pytest.raises(SourceLost, match="start it with --log-slave-updates"):
        refuse_unfit(known, replace(fit, logs_replicated=False))
    for pins in ([Pin(5, 5)], [Pin(5, 5, trail=Trail(gtids)), Pin(9, 9)]):
        with pytest.raises(
            SourceLost, match=r"is not known: it had gtid_mode = OFF\. Start once with that server"
        ):
            known_of(pins, 7, "b:1")


def test_what_was_written_beyond_what_was_stored_must_be_there() -> None:
    """A process was killed behind a commit and before it stored how far it was."""
    known = Known(start=Pin(5, 50, trail=Trail(parse_gtids("0-1-5"))), later=())
    log = Log.of([Transaction("0-1", n, 0) for n in range(1, 9)], random.Random(1))
    named = log.named(since=5, after=50)  # 51, 52, 53
    for reached_ts in (0, 50, 51, 53, 52):
        refuse_beyond("b:1", reached_ts, known, named)
    with pytest.raises(Lags, match="tables have changes up to ts 70"):
        refuse_beyond("b:1", 70, known, named)
    gap = replace(named, commit_ts=np.array([51, 60, 61]))
    refuse_beyond("b:1", 59, known, gap)  # right below a DDL at 60
    with pytest.raises(SourceLost, match="it may lack some that were applied"):
        refuse_beyond("b:1", 55, known, gap)
