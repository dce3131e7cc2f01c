"""Whether a changefeed can go on in another server's log, and where: by sets of GTIDs. Pure.

    pins of the server before ──GTIDs──► the same places in the other log ──► pins there

A pin's place in the other log is where exactly its transactions lie before. If others lie there
too, they were never read; if one lies behind, it would be read twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from streaming.source.binlog.walk.named_groups import NamedGroups
from streaming.source.contract import SourceAway, SourceLost
from streaming.source.resolved.commit_clock import Pin
from streaming.source.resolved.gtid_sets import GtidSet

_ANEW: Final = "copy the tables anew into another warehouse"
_NAMED: Final = 400  # characters of a set in a sentence


class Lags(SourceAway):
    """The server lacks transactions that were read: it may still get them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a server says. ``executed``: all its transactions; ``lost``: those that are in none of
    its binlog files, or lie before them."""

    address: str
    executed: GtidSet
    lost: GtidSet
    has_gtids: bool = True
    logs_replicated: bool = True  # what it replicates is in its binlog too


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What was stored of the server before: the pin from which numbering begins again, and those
    behind it."""

    start: Pin
    later: tuple[Pin, ...]

    @property
    def last(self) -> Pin:
        return self.later[-1] if self.later else self.start

    @property
    def reached_ts(self) -> int:
        return max(pin.floor_ts for pin in (self.start, *self.later))


def known_of(pins: Sequence[Pin], low_water: int, address: str) -> Known:
    """``low_water``: everything before is applied. Raises SourceLost where the GTIDs of a pin that
    is needed are not known."""
    before = [pin for pin in pins if pin.position <= low_water and pin.gtids is not None]
    later = [pin for pin in pins if before and pin.position > before[-1].position]
    unknown = [pin for pin in later if pin.gtids is None]
    if not before or (later and later[-1].gtids is None) or any(pin.is_needed for pin in unknown):
        raise SourceLost(
            f"{address} is another server, and which GTIDs were read of the one before is not "
            "known: it had gtid_mode = OFF. Start once with that server (with gtid_mode = ON); if "
            f"it is lost, {_ANEW}"
        )
    return Known(start=before[-1], later=tuple(pin for pin in later if pin.gtids is not None))


def refuse_unfit(known: Known, standing: Standing) -> None:
    """Raise SourceLost, or Lags where waiting may help."""
    address, start, last = standing.address, known.start.gtids, known.last.gtids
    assert start is not None
    assert last is not None
    if not standing.has_gtids:
        raise SourceLost(
            f"{address} is another server, and has gtid_mode = OFF: where to go on in its binlog "
            "cannot be told. Set gtid_mode = ON on all servers of the replication before a failover"
        )
    if not standing.logs_replicated:
        raise SourceLost(
            f"{address} is another server, and does not write into its binlog what it replicates: "
            "start it with --log-slave-updates (in MySQL --log-replica-updates), let it replicate "
            f"from then on, and use another server now; if there is none, {_ANEW}"
        )
    if missing := last.minus(standing.executed):
        raise Lags(
            f"{address} lacks transactions that were read of the server before: {shown(missing)}. "
            f"Wait until it has replicated them; if they are lost with that server, {_ANEW}"
        )
    if lost := standing.lost.minus(start):
        raise SourceLost(
            f"{address} has deleted what is needed of its binlog, or never had it there: "
            f"{shown(lost)}. Use another server that has it; if there is none, {_ANEW}"
        )


def count_before(gtids: GtidSet, head: GtidSet, named: NamedGroups) -> int | None:
    """How many of the transactions of a log must have come for these to be there; None if they do
    not come. ``head``: what lies before the first of them."""
    if not gtids.last and not head.last:
        count = gtids.count - head.count
        return count if 0 <= count <= len(named) else None
    counts = [0]
    for each in gtids.last:
        if each in head.last:
            continue
        where = named.find(f"{each.domain}-{each.server}", each.number)
        if where is None:
            return None
        counts.append(where + 1)
    return max(counts)


def places(
    sets: Sequence[GtidSet], head: GtidSet, named: NamedGroups, *, begin: int, address: str
) -> list[int]:
    """Where in a log exactly each of these sets lies before; each has all of the one before it.
    ``head``: what lies before ``begin``, ``named``: the transactions from there on. Raises
    SourceLost if there is no such place."""
    found: list[int] = []
    for gtids in sets:
        count = count_before(gtids, head, named)
        more = named.of(len(named) if count is None else count)
        there = None if more is None else head.plus(more)
        if count is not None and there == gtids:
            found.append(int(named.end[count - 1]) if count else begin)
        else:
            raise _unlike(address, gtids, there)
    return found


def _unlike(address: str, gtids: GtidSet, there: GtidSet | None) -> SourceLost:
    """``there``: what lies before the place instead."""
    extra = GtidSet() if there is None else there.minus(gtids)
    if extra:
        return SourceLost(
            f"{address} has transactions that the server before never had, amid those that were "
            f"read: {shown(extra)}. They were written on it while it was a replica, or in another "
            f"order (replica_preserve_commit_order). Use another server; if there is none, {_ANEW}"
        )
    lacking = "" if there is None else f" ({shown(gtids.minus(there))})"
    return SourceLost(
        f"{address} has another history than the server before{lacking}: its binlog does not come "
        f"to {shown(gtids)}. Use another server; if there is none, {_ANEW}"
    )


def refuse_otherwise(address: str, pins: Sequence[Pin], named: NamedGroups) -> None:
    """Raise SourceLost unless the transactions behind the first of these pins come in the order,
    and have the numbers, that they had on the server before. ``pins``: in the other log."""
    first = pins[0].trail
    assert first is not None
    for pin in pins[1:]:
        if named.after(first, named.before(pin.position)) != pin.trail:
            raise SourceLost(
                f"{address} has the transactions before {shown(pin.gtids)} in another order, or at "
                "other times, than the server before: it replicates several domains side by side, "
                "without replica_preserve_commit_order, or leaves tables out. Use another server; "
                f"if there is none, {_ANEW}"
            )


def refuse_beyond(address: str, reached_ts: int, known: Known, named: NamedGroups) -> None:
    """Raise SourceLost where a table may have a transaction that the other server lacks.

    A process that is killed may have written more than it has stored. A table's ts is then that of
    the last transaction that was read, or right below a DDL's: one of the two must be there.
    ``named``: those behind the start."""
    if reached_ts <= known.reached_ts:
        return
    if reached_ts in named.commit_ts or reached_ts + 1 in named.commit_ts:
        return
    is_short = not len(named) or int(named.commit_ts[-1]) < reached_ts
    raise (Lags if is_short else SourceLost)(
        f"tables have changes up to ts {reached_ts}, which were stored up to ts "
        f"{known.reached_ts} alone, and {address} has no transaction of that ts: it may lack some "
        f"that were applied. Start once with the server before; if it is lost, {_ANEW}"
    )


def shown(gtids: GtidSet | None) -> str:
    text = str(gtids or "none")
    return text if len(text) <= _NAMED else f"{text[:_NAMED]}… ({len(text)} characters)"
