"""Changed bytes: never a crash, never a byte from behind an event, and the others are read."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from streaming.protocols.contract import NO_TABLE, Block, Kind
from streaming.source.binlog.format.blocks import Slice, row_blocks
from streaming.source.binlog.format.faults import CHECKSUM, NO_TABLE_MAP, Refused
from tests.streaming.source.binlog.binlogs import rows_by_place, wanted
from tests.streaming.source.binlog.recorded import NAMES, TABLES, binlog, shown

WANTED = wanted(*TABLES)


def events_in(one: Slice) -> list[bytes]:
    ends = [*one.at[1:].tolist(), len(one.data)]
    return [one.data[a:b] for a, b in zip(one.at.tolist(), ends, strict=True)]


def among_junk(one: Slice, events: list[bytes], rng: random.Random) -> Slice:
    """The events with other bytes between them, as framing would be."""
    data, at = bytearray(), []
    for event in events:
        data += rng.randbytes(rng.randrange(20))
        at.append(len(data))
        data += event
    data += rng.randbytes(rng.randrange(200))
    return replace(one, data=bytes(data), at=np.array(at, np.int64))


SIZE = range(9, 13)  # the bytes of a header that say where the event ends


def changed(
    events: list[bytes], rng: random.Random, *, keeps_size: bool = False
) -> tuple[list[bytes], set[int]]:
    """Some bytes of some events, and which events have others than before."""
    out = list(events)
    for _ in range(rng.randrange(1, 5)):
        number = rng.randrange(1, len(out))
        event = bytearray(out[number])
        if rng.random() < 0.1 and not keeps_size:
            event = event[: rng.randrange(len(event))]
        else:
            for _ in range(rng.randrange(1, 4)):
                place = rng.randrange(len(event)) if event else 0
                if event and not (keeps_size and place in SIZE):
                    event[place] = rng.choice([0, 255, rng.randrange(256)])
        out[number] = bytes(event)
    return out, {n for n, event in enumerate(out) if event != events[n]}


def outcome(one: Slice, *, checks_crc: bool) -> list[Block] | str:
    try:
        return list(row_blocks(one, "0", WANTED, checks_crc=checks_crc))
    except Refused as refused:
        return str(refused)


@pytest.mark.seeds(8)
@pytest.mark.parametrize("name", NAMES)
def test_the_checksum_finds_each_change(name: str, seed: int):
    """Every changed event is a BAD one, with its bytes; every row is as before or gone."""
    rng = random.Random(seed)
    one = binlog(name).slice()
    events = events_in(one)
    mutated, numbers = changed(events, rng)
    found = list(row_blocks(among_junk(one, mutated, rng), "0", WANTED))
    bad = [row for block in found if block.kind == Kind.BAD for row in block.table().to_pylist()]
    positions = {row["position"] for row in bad if row["error_class"] != NO_TABLE_MAP}
    assert positions == {int(one.position[number]) for number in numbers}
    assert all(block.name == NO_TABLE for block in found if block.kind == Kind.BAD)
    for row in bad:
        if row["error_class"] == CHECKSUM:  # the size may be one of the changed bytes
            event = mutated[one.position.tolist().index(row["position"])]
            assert event.startswith(row["value"]) or row["value"].startswith(event)
    clean = rows_of(list(row_blocks(one, "0", WANTED)))
    left = rows_of(found)
    assert left.items() <= clean.items()
    gone = {place[1] for place in clean.keys() - left.keys()}
    assert gone <= {row["position"] for row in bad}


def rows_of(blocks: list[Block]) -> dict[tuple[object, ...], str]:
    return {
        (name, row["position"], row["index"]): str(row)
        for name, row in rows_by_place([block for block in blocks if block.kind == Kind.ROW])
    }


@pytest.mark.seeds(16)
@pytest.mark.parametrize("name", NAMES)
def test_without_checksums_nothing_is_read_behind_an_event(name: str, seed: int):
    """What comes of changed events does not depend on the bytes that stand between them."""
    rng = random.Random(seed)
    one = binlog(name).slice()
    mutated, _ = changed(events_in(one), rng, keeps_size=True)
    results = []
    for _ in range(3):
        result = outcome(among_junk(one, mutated, rng), checks_crc=False)
        results.append(result if isinstance(result, str) else shown(result))
    assert results[0] == results[1] == results[2]


def test_bytes_that_hold_no_event():
    one = binlog(NAMES[0]).slice()
    for data in (b"", b"\0" * 5, b"\xff" * 40):
        at = np.array([0] if data else [], np.int64)
        tiny = replace(one, data=data, at=at, position=at, commit_ts=at)
        kinds = [block.kind for block in row_blocks(tiny, "0", WANTED)]
        assert kinds == ([Kind.BAD] if data else [])
