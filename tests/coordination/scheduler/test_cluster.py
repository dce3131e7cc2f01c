"""Coordinator and agents together: they settle, whatever the network does, with one writer each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest

from coordination.model import CaptureID, Ts
from coordination.scheduler.table_status import TableState
from tests.coordination.scheduler.cluster import Cluster, span


def settle(cluster: Cluster, limit: int = 400) -> int:
    """How many ticks it takes until every table replicates."""
    for ticks in range(limit):
        if cluster.is_settled:
            return ticks
        cluster.tick()
    raise AssertionError(f"not settled after {limit} ticks: {cluster.where()}")


def test_tables_are_spread_and_replicate():
    cluster = Cluster("abc", 12)
    settle(cluster, 30)
    assert Counter(cluster.where().values()) == {"a": 4, "b": 4, "c": 4}
    cluster.advance(500)
    cluster.tick(4)
    assert cluster.last.checkpoint == (500, 500)
    assert cluster.last.can_proceed


def test_spans_of_the_dead_are_prepared_while_their_grace_lasts_and_written_at_its_end():
    cluster = Cluster("abc", 12, max_task_concurrency=1)
    settle(cluster, 30)
    cluster.die("c")
    cluster.tick(10)
    sets = [made for made in cluster.coordinator.replication.sets.values() if made.primary == "c"]
    assert Counter(made.secondary for made in sets) == {"a": 2, "b": 2}
    prepared = [cluster.executors[m.secondary].statuses[m.span.table_id].state for m in sets]
    assert prepared == [TableState.PREPARED] * 4
    cluster.bury("c")
    cluster.tick(4)
    assert Counter(cluster.where().values()) == {"a": 6, "b": 6}
    assert all(len(cluster.writers(table.table_id)) == 1 for table in cluster.tables)
    settle(cluster, 4)


def test_nothing_is_given_to_a_capture_that_is_gone():
    cluster = Cluster("abc", 3)
    settle(cluster, 30)
    cluster.die("c")
    cluster.tables += [span(number) for number in (4, 5, 6)]
    for table in cluster.tables[3:]:
        cluster.coordinator.add_table(table, Ts(100))
    cluster.coordinator.schedulers.move_table(1, CaptureID("c"))
    cluster.tick(10)
    held = cluster.coordinator.replication.held[CaptureID("c")]
    assert len(held) == 1


def test_a_capture_that_returns_within_its_grace_hands_over_in_order():
    cluster = Cluster("abc", 6)
    settle(cluster, 30)
    executor, agent = cluster.executors["c"], cluster.agents["c"]
    cluster.die("c")
    cluster.tick(10)
    cluster.gone.clear()
    cluster.executors["c"], cluster.agents["c"] = executor, agent
    settle(cluster, 30)


def stir(cluster: Cluster, names: Iterator[str]) -> None:
    """One thing that happens to a cluster."""
    rng = cluster.rng
    match rng.randrange(40):
        case 0 if len(cluster.alive) > 2:
            victim = rng.choice(cluster.alive)
            cluster.kill(victim)
            if victim == cluster.coordinator.info.capture_id:
                cluster.elect(rng.choice(cluster.alive))
        case 1 if len(cluster.alive) < 5:
            cluster.start(next(names))
        case 2:
            cluster.elect(rng.choice(cluster.alive))
        case 3 | 4 | 5 | 6:
            table = rng.choice(cluster.tables)
            cluster.coordinator.schedulers.move_table(table.table_id, rng.choice(cluster.alive))
        case 7:
            cluster.coordinator.schedulers.rebalance_is_wanted = True
        case 8:
            cluster.is_frozen ^= {rng.choice(cluster.alive)}
        case _:
            cluster.advance(100 + cluster.ticks)


@pytest.mark.seeds(20, 20)
def test_one_writer_whatever_the_network_and_the_captures_do(seed: int):
    cluster = Cluster("abc", 8, seed=seed, check_balance_interval_s=1.0)
    cluster.lose, cluster.double, cluster.delay = 0.2, 0.2, 0.3
    names = (f"n{number}" for number in count(1))
    for _ in range(250):
        stir(cluster, names)
        cluster.tick(get_on=0.4)
    cluster.lose = cluster.double = cluster.delay = 0.0
    cluster.is_frozen.clear()
    for _ in range(100):
        cluster.advance(10_000)
        cluster.tick()
    assert cluster.is_settled
    assert cluster.last.checkpoint == (10_000, 10_000)


def test_a_drained_capture_is_emptied_and_gets_nothing_more():
    cluster = Cluster("abc", 12, check_balance_interval_s=1.0)
    settle(cluster)
    assert cluster.coordinator.drain_capture(CaptureID("b")) == 4
    cluster.tick(60)
    assert cluster.coordinator.drain_capture(CaptureID("b")) == 0
    assert Counter(cluster.where().values()) == {"a": 6, "c": 6}
    cluster.tick(60)
    assert "b" not in cluster.where().values()


def test_a_table_is_moved_there_and_back():
    cluster = Cluster("ab", 2)
    settle(cluster)
    for dest in ("a", "b", "a"):
        cluster.coordinator.schedulers.move_table(1, CaptureID(dest))
        cluster.tick(20)
        assert cluster.where()[1] == dest
        assert cluster.writers(1) == [dest]


def test_a_lost_capture_is_replaced_and_a_new_one_gets_its_share():
    cluster = Cluster("abc", 12, check_balance_interval_s=1.0)
    settle(cluster)
    cluster.kill("c")
    cluster.tick()
    settle(cluster)
    assert Counter(cluster.where().values()) == {"a": 6, "b": 6}
    cluster.start("d")
    cluster.tick(120)
    assert Counter(cluster.where().values()) == {"a": 4, "b": 4, "d": 4}


def test_a_dropped_table_is_stopped():
    cluster = Cluster("ab", 3)
    settle(cluster)
    cluster.coordinator.replication.remove_table(2)
    cluster.tick(10)
    assert cluster.is_settled
    assert set(cluster.where()) == {1, 3}
    assert cluster.writers(2) == []


def test_a_new_owner_stops_what_it_finds_of_a_table_that_is_gone():
    cluster = Cluster("ab", 3)
    settle(cluster)
    (holder,) = cluster.writers(2)
    del cluster.tables[1]  # dropped while there was no owner
    cluster.elect("b")
    cluster.tick(10)
    assert cluster.is_settled
    assert set(cluster.where()) == {1, 3}
    assert 2 not in cluster.executors[holder].statuses


def test_a_new_owner_leaves_streams_and_fences_as_they_are():
    cluster = Cluster("abc", 6)
    settle(cluster)
    where = cluster.where()
    before = {c: dict(e.statuses) for c, e in cluster.executors.items()}
    cluster.elect("b")
    cluster.tick(5)
    assert cluster.is_settled
    assert cluster.where() == where
    assert {c: e.statuses for c, e in cluster.executors.items()} == before
