"""The arithmetic of GTID sets, beside sets of numbers; texts and heads of files of servers."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from uuid import UUID

import numpy as np
import pytest

from streaming.source.binlog.format.events import Event
from streaming.source.binlog.format.faults import BadEvent
from streaming.source.binlog.format.type_codes import EventType
from streaming.source.binlog.walk.file_heads import before_file
from streaming.source.binlog.walk.named_groups import GtidsBefore, NamedGroups, joined
from streaming.source.resolved.commit_clock import Pin, from_token, to_token
from streaming.source.resolved.gtid_sets import GtidSet, Last, Trail, of_source, parse_gtids

A = "5dc71f0e-e992-11f1-a644-02fc00000001"
B = "fe528ace-e994-11f1-be49-02fc00000001"


def single(gtids: GtidSet) -> set[tuple[str, int]]:
    return {(name, n) for name, runs in gtids.runs for a, b in runs for n in range(a, b + 1)}


def some(dice: random.Random) -> GtidSet:
    found = GtidSet()
    for source in (A, B, f"{A}:tag"):
        numbers = [n for n in range(1, 15) if dice.random() < 0.5]
        found = found.plus(of_source(source, np.array(numbers, np.int64)))
    return found


@pytest.mark.seeds(50)
def test_mysqls_sets_are_sets(seed: int) -> None:
    dice = random.Random(seed)
    one, other = some(dice), some(dice)
    assert single(one.plus(other)) == single(one) | single(other)
    assert single(one.minus(other)) == single(one) - single(other)
    assert (one == other) == (single(one) == single(other))
    assert one.count == len(single(one))
    assert bool(one) == bool(single(one))
    assert parse_gtids(str(one)) == one
    both = one.plus(other)
    assert one.plus(both.since(one)) == both
    assert both.plus(one) == both


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (f"{A}:1-5:7, {A}:6", f"{A}:1-7"),
        (f"{A.upper()}:1:TAG:2-3,\n{B}:4", f"{A}:1,{A}:tag:2-3,{B}:4"),
        (f"{A}:1-3:4-9:2", f"{A}:1-9"),
        (" 5-1-7,0-2-100 ", "0-2-100,5-1-7"),
        ("", ""),
    ],
)
def test_texts_are_read_as_servers_read_them(text: str, same: str) -> None:
    assert str(parse_gtids(text)) == same


@pytest.mark.parametrize(
    "text",
    [
        *("0-1", "x:1", A, f"{A}:", f"{A}:0", f"{A}:5-3", f"{A}:1-", f"{A}:1--2", f"{A}:9tag:1"),
        *(f"{A}:1,0-1-1", "0-1-1,0-2-2", f"{A}:1-99999999999999999999"),
    ],
)
def test_what_no_server_writes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_gtids(text)


def test_mariadbs_list_tells_the_last_of_each_domain() -> None:
    here, there = parse_gtids("0-1-100,3-1-5"), parse_gtids("0-2-120,3-7-5,9-1-1")
    assert str(here.minus(there)) == "3-1-5"  # another transaction has its number
    assert str(there.minus(here)) == "0-2-120,3-7-5,9-1-1"
    assert str(here.plus(there)) == "0-2-120,3-7-5,9-1-1"
    assert str(there.since(here)) == "0-2-120,3-7-5,9-1-1"
    assert not here.minus(here)


def test_a_token_keeps_the_sets_of_its_pins() -> None:
    sets = [None, parse_gtids(""), parse_gtids(f"{A}:1-5"), None, parse_gtids(f"{A}:1-9,{B}:2")]
    trails = [each if each is None else Trail(each, 7, (1 << 64) - 1) for each in sets]
    pins = tuple(Pin(at, at, trail=each) for at, each in enumerate(trails, 1))
    assert from_token(to_token(pins)) == pins
    assert f"{A}:6-9" in to_token(pins), "a set says what the one before does not"
    maria = tuple(
        Pin(at, at, trail=Trail(parse_gtids(each)))
        for at, each in enumerate(["0-1-5", "0-2-9,1-1-1"], 1)
    )
    assert from_token(to_token(maria)) == maria


def event(kind: EventType, body: bytes) -> Event:
    return Event(kind=kind, time_s=1, server_id=1, end_offset=0, flags=0, body=body)


def test_the_heads_of_files() -> None:
    runs = struct.pack("<QQQQQ", 2, 1, 6, 8, 9)
    plain = struct.pack("<Q", 1) + UUID(A).bytes + runs
    assert str(before_file(event(EventType.PREVIOUS_GTIDS, plain))) == f"{A}:1-5:8"
    head = struct.pack("<Q", 1 << 56 | 2 << 8 | 1)
    tagged = head + UUID(A).bytes + b"\0" + runs + UUID(A).bytes + b"\x06tag" + runs
    assert str(before_file(event(EventType.PREVIOUS_GTIDS, tagged))) == (f"{A}:1-5:8,{A}:tag:1-5:8")
    each = [(0, 1, 90), (0, 2, 100), (4, 1, 7)]
    body = struct.pack("<I", len(each)) + b"".join(struct.pack("<IIQ", *one) for one in each)
    assert str(before_file(event(EventType.GTID_LIST, body))) == "0-2-100,4-1-7"
    for cut in (1, 9, 30):
        with pytest.raises(BadEvent):
            before_file(event(EventType.PREVIOUS_GTIDS, plain[:-cut]))
    with pytest.raises(BadEvent):
        before_file(
            event(EventType.PREVIOUS_GTIDS, struct.pack("<Q", 1) + UUID(A).bytes + b"\xff" * 8)
        )


def groups(*gtids: tuple[str, int], first_end: int = 10) -> NamedGroups:
    sources = tuple(dict.fromkeys(name for name, _ in gtids))
    return NamedGroups(
        sources,
        np.array([sources.index(name) for name, _ in gtids], np.int64),
        np.array([number for _, number in gtids], np.int64),
        np.arange(len(gtids), dtype=np.int64) * 10 + first_end,
        np.arange(len(gtids), dtype=np.int64),
    )


def test_what_lies_before_a_place() -> None:
    named = groups((A, 1), (A, 2), (B, 1), (A, 3))
    known = GtidsBefore(named, Trail(parse_gtids(f"{B}:9"), 5, 1), GtidSet(), None)
    assert [shown(known(at)) for at in (9, 10, 30, 99)] == [
        f"{B}:9 5", f"{A}:1,{B}:9 6", f"{A}:1-2,{B}:1:9 8", f"{A}:1-3,{B}:1:9 9",
    ]  # fmt: skip
    told = GtidsBefore(named, None, parse_gtids(f"{A}:1-2"), 20)
    assert [shown(told(at)) for at in (10, 20, 40)] == ["", f"{A}:1-2 0", f"{A}:1-3,{B}:1 2"]
    nameless = GtidsBefore(groups((A, 1), ("", 0), (A, 2)), Trail(GtidSet()), GtidSet(), None)
    assert [shown(nameless(at)) for at in (10, 20, 30)] == [f"{A}:1 1", "", ""]


def shown(trail: Trail | None) -> str:
    return "" if trail is None else f"{trail.gtids} {trail.count}"


def test_a_trail_tells_the_order() -> None:
    start = Trail(GtidSet())
    one = groups((A, 1), (B, 1), (A, 2)).after(start)
    other = groups((B, 1), (A, 1), (A, 2)).after(start)
    assert one is not None
    assert other is not None
    assert one.gtids == other.gtids
    assert one != other
    step = groups((A, 1)).after(start)
    assert step is not None
    rest = groups((B, 1), (A, 2))
    assert rest.after(step) != one, "the commit-ts are others"
    assert replace(rest, commit_ts=rest.commit_ts + 1).after(step) == one


def test_mariadbs_transactions_of_several_servers() -> None:
    both = joined([groups(("0-1", 5), ("0-2", 6)), groups(("1-1", 1), ("0-1", 7), first_end=30)])
    assert both.of(2) == GtidSet(last=(Last(0, 2, 6),))
    assert both.of(4) == GtidSet(last=(Last(0, 1, 7), Last(1, 1, 1)))
    assert both.find("0-2", 6) == 1
    assert both.find("0-2", 5) is None
    assert both.end.tolist() == [10, 20, 30, 40]
