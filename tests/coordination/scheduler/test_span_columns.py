"""A million sets as columns are what they were one by one."""

from __future__ import annotations

import random
from dataclasses import fields

import pytest

from coordination.model import CaptureID, TermNumber, Ts
from coordination.scheduler.messages import Span
from coordination.scheduler.replication_manager import ReplicationManager
from coordination.scheduler.replication_set import ReplicationSet, ReplicationState
from coordination.scheduler.span_columns import SpanColumns
from coordination.scheduler.table_status import Statuses, TableState, TableStatus

CAPTURES = (CaptureID("a"), CaptureID("b"), CaptureID("c"))


def shown(span_set: ReplicationSet) -> dict[str, object]:
    return {each.name: getattr(span_set, each.name) for each in fields(span_set)}


def some_status(rng: random.Random, table_id: int) -> TableStatus:
    at = rng.randrange(5)
    return TableStatus(
        *(table_id, rng.choice([TableState.REPLICATING, *TableState][:6])),
        *(Ts(at), Ts(at + rng.randrange(3)), Ts(at), rng.randrange(3)),
        rng.choice([None, 3, 4]),
        engine=rng.choice([None, "merge-on-write"]),
        source_positions=rng.choice([None, {"shop/0": 7}]),
        error=rng.choice([None, "it cannot be written"]),
    )


def some_set(rng: random.Random, table_id: int) -> ReplicationSet:
    first, second, third = rng.sample((None, None, *CAPTURES), 3)
    return ReplicationSet(
        span=Span(table_id, "shop", f"t{table_id}"),
        checkpoint_ts=Ts(rng.randrange(5)),
        resolved_ts=Ts(rng.randrange(8)),
        state=rng.choice([ReplicationState.REPLICATING, *ReplicationState]),
        primary=first,
        secondary=second,
        undetermined=() if third is None else (third,),
        delta_version=rng.choice([None, 3, 4]),
        status=rng.choice([None, some_status(rng, table_id)]),
    )


@pytest.mark.seeds(20)
def test_what_is_put_is_there_until_it_is_removed(seed: int):
    rng = random.Random(seed)
    sets, wanted = SpanColumns(), {}
    for _ in range(200):
        table_id = rng.randrange(60)
        if table_id in wanted and rng.random() < 0.4:
            sets.remove(table_id)
            del wanted[table_id]
        else:
            made = some_set(rng, table_id)
            sets.put(made, is_current=True, is_news=True)
            wanted[table_id] = shown(made)
        assert {table_id: shown(each) for table_id, each in sets.items()} == wanted
        assert sets.primaries == {each["primary"] for each in wanted.values()} - {None}
        least = min((each["checkpoint_ts"] for each in wanted.values()), default=None)
        assert (sets.least() and sets.least().checkpoint_ts) == least
    changed = sets.take_changed()
    assert sorted(each.span.table_id for each in changed) == sorted(wanted)
    assert not sets.take_changed()


@pytest.mark.seeds(20)
def test_spans_that_have_only_advanced_are_as_if_polled_one_by_one(seed: int):
    rng = random.Random(seed)
    sets, single = SpanColumns(), {}
    for table_id in range(rng.choice([1, 50])):
        made = some_set(rng, table_id)
        sets.put(made, is_current=True, is_news=False)
        single[table_id] = sets[table_id]
    for _ in range(30):
        capture_id = rng.choice(CAPTURES)
        statuses = [some_status(rng, table_id) for table_id in range(60) if rng.random() < 0.6]
        left = sets.advance(capture_id, Statuses.of(statuses))
        taken = [each for each in statuses if each not in left]
        for status in taken:
            before = single[status.table_id]
            assert (before.state, before.primary) == (ReplicationState.REPLICATING, capture_id)
            is_news = before.status != status
            assert before.poll(status, capture_id) == []
            assert (status.table_id in [each.span.table_id for each in news(sets)]) == is_news
        assert {t: shown(each) for t, each in sets.items()} == {
            t: shown(each) for t, each in single.items()
        }
        sets.take_changed()
        for status in left:
            made = single.get(status.table_id)
            is_written = made is not None and made.state is ReplicationState.REPLICATING
            is_ours = is_written and made.primary == capture_id
            assert not is_ours or status.state is not TableState.REPLICATING


def news(sets: SpanColumns) -> list[ReplicationSet]:
    """What `take_changed` would give."""
    found = sets.take_changed()
    for each in found:
        sets.put(each, is_current=True, is_news=True)
    return [*found]


@pytest.mark.seeds(20)
def test_a_new_owner_has_the_sets_that_are_built_one_by_one(seed: int):
    rng = random.Random(seed)
    reported: dict[CaptureID, dict[int, TableStatus]] = {each: {} for each in CAPTURES}
    for table_id in range(40):
        for state, capture_id in zip(
            [TableState.REPLICATING, *rng.choices([*TableState], k=2)],
            rng.sample(CAPTURES, rng.choice([1, 1, 2, 3])),
            strict=False,
        ):
            is_second = state is TableState.REPLICATING and any(
                table_id in each for each in reported.values()
            )
            if not is_second:
                status = some_status(rng, table_id)._replace(state=state)
                reported[capture_id][table_id] = status
    spans = ReplicationManager(term=TermNumber(1), max_task_concurrency=10)
    for table_id in range(30):  # the others are not the changefeed's any more
        spans.add_table(Span(table_id, "shop", f"t{table_id}"), Ts(table_id % 5))
    told = {each: Statuses.of(statuses.values()) for each, statuses in reported.items()}
    spans.initialize(told, Ts(2))
    for table_id in range(40):
        by_capture = {c: each[table_id] for c, each in reported.items() if table_id in each}
        start_ts = Ts(table_id % 5 if table_id < 30 else 2)
        span = Span(table_id, "shop", f"t{table_id}") if table_id < 30 else Span(table_id, "", "")
        built = ReplicationSet.build(span, start_ts, by_capture)
        if table_id not in spans.sets:
            assert not built.holders
            continue
        assert shown(spans.sets[table_id]) == shown(built)
        assert all(table_id in spans.held[each] for each in built.holders)
    assert not spans.missing.keys() & spans.sets.keys()
