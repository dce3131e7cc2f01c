"""EXCHANGE PARTITION: the rows of a partition and those of a table change places, once, whoever
tries it, late, or dies between its two commits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from deltalake import DeltaTable

from coordination.errors import Fenced, TidelakeError
from coordination.model import Ts
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.exchange_partition import exchange
from sinks.merge_on_write.log import commit as commits
from sinks.merge_on_write.log.pause import set_paused
from sinks.merge_on_write.upkeep.fold import fold
from sinks.target.engine_port import TableHeld
from sinks.target.target_table import refuse_another_key, state_of
from sinks.target.write_mode import WriteMode
from tests.sinks.merge_on_write.alter.test_partition_rows import NAME, Row
from tests.sinks.merge_on_write.ddls import set_property
from tests.sinks.merge_on_write.exchanges import RANGES, C, Pair, numbered
from tests.sinks.merge_on_write.faulty_storage import FaultyStorage
from tests.sinks.merge_on_write.lifecycle.test_rename import cleaned


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "PAUSE_S", 0.0)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path / "shop é")
    yield made
    made.close()


def new_engine() -> Iterator[MergeOnWriteEngine]:
    engine = MergeOnWriteEngine({}, keeps_up=False)
    yield engine
    engine.close()


engine = pytest.fixture(new_engine, name="engine")
other = pytest.fixture(new_engine, name="other")


def is_in_p1(row: Row) -> bool:
    return bool(row["id"] >= 10)


class TestExchange:
    def test_the_rows_change_places_and_go_on(self, engine: MergeOnWriteEngine, pair: Pair) -> None:
        exchange(engine, pair.order())
        pair.expect(is_in_p1)
        pair.check()
        for each in (pair.partitioned, pair.table):
            state = state_of(DeltaTable(each.uri))
            assert (state.identity(each.target.app_id), state.last_ddl_ts(each.target.app_id)) == (
                Ts(C - 1),
                Ts(C),
            )
            assert not state.is_dropped
        assert state_of(DeltaTable(pair.partitioned.uri)).schema == pair.partitioned.schema
        pair.put()
        pair.check()
        cleaned(str(pair.folder))
        pair.check()

    def test_again_and_back(self, engine: MergeOnWriteEngine, pair: Pair) -> None:
        for number in range(4):
            exchange(engine, pair.order(ts=C + 20 * number))
            pair.expect(is_in_p1)
            pair.check()
            pair.partitioned.ts = pair.table.ts = C + 20 * number
            pair.partitioned.write([{"id": 5, "v": number}], "U")
            pair.partitioned.rows[5,] = {"id": 5, "v": number}
            cleaned(str(pair.folder))
        pair.check()

    @pytest.mark.parametrize("is_full", [True, False])
    def test_one_of_them_is_empty(
        self, engine: MergeOnWriteEngine, tmp_path: Path, is_full: bool
    ) -> None:
        pair = Pair(tmp_path / "shop", rows=numbered(1, 2) if is_full else [], more=None)
        exchange(engine, pair.order())
        pair.expect(is_in_p1)
        pair.check()
        pair.close()

    @pytest.mark.parametrize(
        ("clause", "is_inside"),
        [
            ("HASH (id) PARTITIONS 3", lambda row: row["id"] % 3 == 1),
            (
                "LIST (id) (PARTITION p0 VALUES IN (0, 1, 2, 3), PARTITION p1 DEFAULT)",
                lambda row: row["id"] > 3,
            ),
        ],
    )
    def test_partitions_of_other_kinds(
        self,
        engine: MergeOnWriteEngine,
        tmp_path: Path,
        clause: str,
        is_inside: Callable[[Row], bool],
    ) -> None:
        random = Random(16)
        more = [row for row in numbered(*random.sample(range(500), 60)) if is_inside(row)]
        pair = Pair(tmp_path / "shop", clause, rows=numbered(*range(40)), more=more)
        exchange(engine, pair.order())
        pair.expect(is_inside)
        pair.check()
        pair.close()

    def test_columns_are_found_by_name_in_any_case(
        self, engine: MergeOnWriteEngine, tmp_path: Path
    ) -> None:
        """Their names in files differ, and so may those that were added by hand."""
        pair = Pair(tmp_path / "shop", other="ID INT, v INT, PRIMARY KEY (ID)", more=[])
        exchange(engine, pair.order())
        assert {row["ID"] for row in pair.table.read().values()} == {
            row["id"] for row in pair.partitioned.rows.values() if is_in_p1(row)
        }
        pair.close()


class TestOnce:
    def test_a_replay_changes_nothing(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, pair: Pair
    ) -> None:
        exchange(engine, pair.order())
        pair.expect(is_in_p1)
        pair.put()
        at = pair.versions()
        for each in (engine, other):
            exchange(each, pair.order())
        assert pair.versions() == at
        pair.check()

    @pytest.mark.parametrize("put_at", [1, 2])
    def test_a_zombie_wakes_when_its_successor_went_on(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, pair: Pair, put_at: int
    ) -> None:
        def meanwhile() -> None:
            exchange(other, pair.order())
            pair.expect(is_in_p1)
            pair.put()

        at_put(engine, pair, put_at, meanwhile)
        exchange(engine, pair.order())
        cleaned(str(pair.folder))
        pair.check()

    @pytest.mark.parametrize("when", ["before", "after"])
    @pytest.mark.parametrize("put_at", [1, 2])
    def test_it_dies_at_a_put(
        self,
        engine: MergeOnWriteEngine,
        other: MergeOnWriteEngine,
        pair: Pair,
        put_at: int,
        when: str,
    ) -> None:
        at_put(engine, pair, put_at, lambda: _raise(KeyboardInterrupt()), when)
        with pytest.raises(KeyboardInterrupt):
            exchange(engine, pair.order())
        seen = [state_of(DeltaTable(each.uri)) for each in (pair.partitioned, pair.table)]
        is_done = [state.last_ddl_ts(pair.table.target.app_id) == C for state in seen]
        assert is_done == [(put_at, when) == (2, "after"), (put_at, when) != (1, "before")]
        exchange(other, pair.order())
        pair.expect(is_in_p1)
        pair.put()
        exchange(engine, pair.order())
        pair.check()

    @pytest.mark.parametrize("put_at", [1, 2])
    def test_a_fold_comes_between(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, pair: Pair, put_at: int
    ) -> None:
        def meanwhile() -> None:
            for each in (pair.partitioned, pair.table):
                fold(other.table(each.uri), ("id",))

        at_put(engine, pair, put_at, meanwhile)
        exchange(engine, pair.order())
        pair.expect(is_in_p1)
        pair.check()

    def test_no_rewind_goes_below_it(self, engine: MergeOnWriteEngine, pair: Pair) -> None:
        exchange(engine, pair.order())
        for each in (pair.partitioned, pair.table):
            state = state_of(DeltaTable(each.uri))
            refuse_another_key(NAME, state, C - 1)
            with pytest.raises(TidelakeError, match=f"--overwrite-checkpoint-ts {C - 1} at least"):
                refuse_another_key(NAME, state, C - 2)

    def test_what_a_new_incarnation_finds_done_stays(
        self, engine: MergeOnWriteEngine, pair: Pair
    ) -> None:
        exchange(engine, pair.order())
        pair.expect(is_in_p1)
        order = pair.order()
        anew = replace(
            order,
            table=replace(order.table, app_id="tidelake/shop/2/shop.t#1"),
            partitioned=replace(order.partitioned, app_id="tidelake/shop/2/shop.t#1"),
        )
        at = pair.versions()
        exchange(engine, anew)
        assert pair.versions() == at
        pair.check()

    def test_a_version_that_is_gone_is_told(
        self, engine: MergeOnWriteEngine, other: MergeOnWriteEngine, pair: Pair
    ) -> None:
        at_put(engine, pair, 2, lambda: _raise(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            exchange(engine, pair.order())
        set_property(pair.table.uri, "tidelake.left", json.dumps([C + 1, 4]))
        with pytest.raises(TidelakeError, match="had are no longer at"):
            exchange(other, pair.order())


class TestRefused:
    def refused(self, engine: MergeOnWriteEngine, pair: Pair, why: str, part: str = "p1") -> None:
        before = pair.versions()
        with pytest.raises(TidelakeError, match=why):
            exchange(engine, pair.order(part))
        assert pair.versions() == before
        pair.close()

    def test_rows_that_are_in_another_partition(
        self, engine: MergeOnWriteEngine, pair: Pair
    ) -> None:
        self.refused(engine, pair, r"are not in partition p0 \(WITHOUT VALIDATION\)", "p0")

    def test_a_partition_that_is_not_there(self, engine: MergeOnWriteEngine, pair: Pair) -> None:
        self.refused(engine, pair, "the table has no partition p7", "p7")

    @pytest.mark.parametrize(
        "other", ["id BIGINT, v INT, PRIMARY KEY (id)", "id INT, v INT, PRIMARY KEY (v)"]
    )
    def test_tables_that_are_not_alike(
        self, engine: MergeOnWriteEngine, tmp_path: Path, other: str
    ) -> None:
        pair = Pair(tmp_path / "shop", other=other, more=[])
        self.refused(engine, pair, "the known columns of .* differ")

    def test_a_key_that_does_not_tell_the_partition(
        self, engine: MergeOnWriteEngine, tmp_path: Path
    ) -> None:
        pair = Pair(tmp_path / "shop", RANGES.replace("(id)", "(v)"), more=[])
        self.refused(engine, pair, "does not tell in which partition a row is")

    @pytest.mark.parametrize(
        "form",
        [
            WriteMode(mode="append"),
            WriteMode(soft_delete=True),
            WriteMode(extra_columns=("_tidelake_op",)),
        ],
    )
    def test_a_table_of_another_form(
        self, engine: MergeOnWriteEngine, pair: Pair, form: WriteMode
    ) -> None:
        order = pair.order()
        with pytest.raises(TidelakeError, match="only plain upserted tables exchange rows"):
            exchange(engine, replace(order, table=replace(order.table, form=form)))

    @pytest.mark.parametrize("which", ["parts", "plain"])
    def test_one_that_is_paused_waits(
        self, engine: MergeOnWriteEngine, pair: Pair, which: str
    ) -> None:
        set_paused(f"{pair.folder}/{which}", {}, paused=True)
        with pytest.raises(TableHeld):
            exchange(engine, pair.order())
        set_paused(f"{pair.folder}/{which}", {}, paused=False)
        exchange(engine, pair.order())
        pair.expect(is_in_p1)
        pair.check()

    def test_one_who_is_no_longer_trusted(self, engine: MergeOnWriteEngine, pair: Pair) -> None:
        before = pair.versions()
        with pytest.raises(Fenced):
            exchange(engine, pair.order(before_commit=lambda: _raise(Fenced("lost"))))
        assert pair.versions() == before


def at_put(
    engine: MergeOnWriteEngine,
    pair: Pair,
    number: int,
    does: Callable[[], None],
    when: str = "before",
) -> None:
    """At the so-manieth commit of both that the engine makes."""
    count = iter(range(1, 99))

    def hook(path: str) -> None:
        if path.endswith(".json") and next(count) == number:
            does()

    for each in (pair.partitioned, pair.table):
        table = engine.table(each.uri)
        storage = FaultyStorage(table.storage)
        setattr(storage, when, hook)
        table.storage = storage


def _raise(error: BaseException) -> None:
    raise error
