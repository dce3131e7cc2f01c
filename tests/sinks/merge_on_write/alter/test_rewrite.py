"""Rows that a DDL writes anew in parts: wherever these are done, in which order, and how often."""

from __future__ import annotations

import os
import pickle
import random
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from coordination.errors import TidelakeError
from sinks.merge_on_write.alter import duplicate_keys, rewrite
from sinks.merge_on_write.alter.duplicate_keys import ShareOfKeys
from sinks.merge_on_write.alter.rewrite import Part, PartMapper, Result
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.log.actions import DataFile
from sinks.merge_on_write.log.physical_schema import PhysicalColumn, arrow_type
from sinks.merge_on_write.log.reader import read_log
from sinks.storage.local_storage import LocalStorage
from sinks.storage.open_storage import StorageOpener
from sinks.target.engine_port import Applied
from sinks.types.delta_types import delta_type
from sinks.types.mysql_type import MySQLType
from tests.seeds import hunted_seeds
from tests.services.delta_rows import read_rows
from tests.sinks.merge_on_write.altering import AlteredHistory, column
from tests.sinks.merge_on_write.ddls import (
    ADD_FILLED,
    ID,
    V,
    action,
    assert_in_memory,
    change,
    ddl,
    orphans,
)
from tests.sinks.merge_on_write.histories import POOLS
from tests.sinks.merge_on_write.orders import UPSERTED, changed, rows_of, write

ROWS_OF_A_PART = 9


def scattered(dice: random.Random, results: list[Any] | None = None) -> PartMapper:
    """Through pickle, in any order, some parts twice: a task may be lost after it has written. The
    results come in the order of parts nevertheless, and so does the first error."""

    def mapper(
        work: Callable[[Part], Result], parts: Sequence[Part], _size_bytes: int
    ) -> Generator[Result]:
        done: dict[int, Any] = {}
        for number in dice.sample(range(len(parts)), len(parts)):
            for _ in range(dice.choice((1, 1, 2))):
                sent: Any = pickle.loads(pickle.dumps((work, parts[number])))
                try:
                    done[number] = pickle.loads(pickle.dumps(sent[0](sent[1])))
                except TidelakeError as error:
                    done[number] = pickle.loads(pickle.dumps(error))
        for number in range(len(parts)):
            if isinstance(done[number], Exception):
                raise done[number]
            if results is not None:
                results.append(done[number])
            yield done[number]

    return mapper


class TestRandomTables:
    STEPS = 14

    def live(self, seed: int, folder: Path) -> int:
        """How many parts there were."""
        results: list[Any] = []
        history = AlteredHistory(seed=seed, folder=folder)
        history.map_parts = scattered(history.dice, results)
        try:
            for _ in range(self.STEPS):
                history.step()
                history.check()
            history.check_states()
            history.check_filters()
        finally:
            history.close()
        return len(results)

    def test_every_reader_sees_the_model(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(rewrite, "SLICE_ROWS", 3)
        monkeypatch.setattr(duplicate_keys, "SHARE_KEYS", 5)
        assert sum(self.live(seed, tmp_path) for seed in range(100, 106)) > 10

    @pytest.mark.soak
    def test_every_reader_sees_the_model_of_many(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(rewrite, "SLICE_ROWS", 3)
        monkeypatch.setattr(duplicate_keys, "SHARE_KEYS", 5)
        for seed in hunted_seeds(300):
            self.live(seed, tmp_path)


class TestParts:
    def test_small_files_are_one_part_and_a_large_one_is_a_part(self) -> None:
        def file(rows: int | None, size: int) -> DataFile:
            stats = "{}" if rows is None else f'{{"numRecords":{rows}}}'
            path = f"{rows}-{size}"
            return DataFile.new(path=path, size=size, modification_time_ms=0, stats=stats)

        small, many, large = (
            file(1000, 9_000), file(rewrite.SLICE_ROWS, 9), file(None, rewrite.PART_BYTES),
        )  # fmt: skip
        assert rewrite.parts_of([]) == []
        assert rewrite.parts_of([small]) == [(small,)]
        found = rewrite.parts_of([small, many, small, small, large, many, large, small])
        assert found == [(small, many), (small, small, large), (many,), (large,), (small,)]

    @pytest.mark.seeds(4)
    def test_both_mappers_make_the_same_commit(
        self, uri: str, engine: MergeOnWriteEngine, seed: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(rewrite, "SLICE_ROWS", ROWS_OF_A_PART)
        before, results = rows_of(uri), list[Any]()
        mapper = scattered(random.Random(seed), results)
        assert engine.alter(ddl(uri, ADD_FILLED, map_parts=mapper)) == Applied(13)
        named = [each["path"] for each in action(uri, "add")]
        assert named == [each.path for files in results for each in files]
        assert len(results) > 3
        assert rows_of(uri) == before
        assert {row["n"] for row in read_rows(uri)} == {7}
        assert_in_memory(engine, uri)

    def test_a_value_without_a_place_in_the_third_part(
        self, uri: str, engine: MergeOnWriteEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The line names it; the first one counts, whichever is found first; nothing is left."""
        monkeypatch.setattr(rewrite, "SLICE_ROWS", ROWS_OF_A_PART)
        rows = {number: str(number) for number in range(120)}
        engine.apply(write(uri, 13, {**rows, 44: "x", 45: "y", 110: "z"}))
        for number in range(3):
            more = {number * 10 + at: str(at) for at in range(10)}
            engine.apply(write(uri, 14 + number, more))
        to_int = change(ID, column("v", "int"))
        line = r"^table shop\.orders: column v: its value 'x' .* int"
        done: list[Any] = []
        for mapper in (None, scattered(random.Random(1), done)):
            options = {} if mapper is None else {"map_parts": mapper}
            with pytest.raises(TidelakeError, match=line):
                engine.alter(ddl(uri, to_int, **options))
            assert DeltaTable(uri).version() == 16
            if mapper is None:
                assert orphans(uri) == set()
        engine.apply(write(uri, 17, {44: "4", 45: "5", 110: "6"}))
        assert isinstance(engine.alter(ddl(uri, to_int)), Applied)

    def test_files_that_are_not_there_are_not_committed(
        self, uri: str, engine: MergeOnWriteEngine
    ) -> None:
        """As of executors that have another disk under the same name."""

        def elsewhere(
            work: Callable[[Part], Result], parts: Sequence[Part], _size_bytes: int
        ) -> Generator[Result]:
            for each in parts:
                files: Any = work(each)
                os.unlink(f"{uri}/{files[0].path}")
                yield files

        before = rows_of(uri)
        with pytest.raises(TidelakeError, match=r"1 of 1 files that were written .* are not there"):
            engine.alter(ddl(uri, ADD_FILLED, map_parts=elsewhere))
        assert (DeltaTable(uri).version(), rows_of(uri)) == (12, before)

    def test_a_result_that_is_missing_is_not_passed_over(
        self, uri: str, engine: MergeOnWriteEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(rewrite, "SLICE_ROWS", ROWS_OF_A_PART)

        def forgets(
            work: Callable[[Part], Result], parts: Sequence[Part], _size_bytes: int
        ) -> Generator[Result]:
            yield from map(work, parts[:-1])

        with pytest.raises(ValueError, match="zip"):
            engine.alter(ddl(uri, ADD_FILLED, map_parts=forgets))
        assert DeltaTable(uri).version() == 12
        assert orphans(uri) == set()

    @pytest.mark.parametrize("deed", ["rows", "another table"])
    def test_a_commit_of_another_comes_while_rows_are_written(
        self,
        uri: str,
        engine: MergeOnWriteEngine,
        other: MergeOnWriteEngine,
        deed: str,
    ) -> None:
        times = 0

        def slow(
            work: Callable[[Part], Result], parts: Sequence[Part], _size_bytes: int
        ) -> Generator[Result]:
            nonlocal times
            times += 1
            yield from map(work, parts)
            if times == 1 and deed == "rows":
                other.apply(write(uri, 99, UPSERTED))
            elif times == 1:  # somebody has put a copy of it there, with other commits
                again = next(Path(uri, "_delta_log").glob("*12.json"))
                again.write_text(again.read_text().replace('"timestamp":1', '"timestamp":2'))

        before = rows_of(uri)
        outcome = engine.alter(ddl(uri, ADD_FILLED, map_parts=slow))
        assert (times, outcome) == (2, Applied(14 if deed == "rows" else 13))
        assert rows_of(uri) == (changed(before, UPSERTED) if deed == "rows" else before)
        assert {row["n"] for row in read_rows(uri)} == {7}
        assert orphans(uri) == set()


class TestDoubleKeys:
    @pytest.mark.seeds(12)
    def test_it_is_found_whatever_the_shares_are(self, tmp_path: Path, seed: int) -> None:
        dice = random.Random(seed)
        able = [kind for kind in POOLS if "binary" not in kind]
        kinds = dice.sample(able, dice.choice((1, 1, 2)))
        columns = [
            PhysicalColumn(
                name=f"c{at}",
                physical=f"p{at}",
                field_id=None,
                arrow=arrow_type("", delta_type(MySQLType.parse(kind))),
                has_statistics=False,
            )
            for at, kind in enumerate(kinds)
        ]
        drawn = [tuple(dice.choice(POOLS[kind]) for kind in kinds) for _ in range(60)]
        keys = drawn if dice.random() < 0.3 else list(dict.fromkeys(drawn))
        dice.shuffle(keys)
        paths = []
        for number in range(4):
            rows = list(zip(*keys[number::4], strict=True)) or [()] * len(kinds)
            arrays = [pa.array(each, c.arrow) for each, c in zip(rows, columns, strict=True)]
            path = f"{number}.parquet"
            table = pa.table(dict(zip((c.physical for c in columns), arrays, strict=True)))
            pa.parquet.write_table(table, tmp_path / path)
            paths.append(path)
        shares = dice.choice((1, 2, 7))
        look = ShareOfKeys(
            uri=str(tmp_path),
            open_place=StorageOpener({}),
            paths=tuple(paths),
            columns=tuple(columns),
            shares=shares,
        )
        found = [pickle.loads(pickle.dumps(look))(number) for number in range(shares)]
        twice = [key for key, count in Counter(keys).items() if count > 1]
        assert any(found) == bool(twice)
        told = [
            [pa.scalar(value, c.arrow).as_py() for value, c in zip(key, columns, strict=True)]
            for key in twice
        ]
        said = {", ".join(map(repr, key)) for key in told}
        assert {each for each in found if each is not None} <= said

    def test_hashes_that_are_alike_by_half_are_no_double(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """All have one first half, and more of them come twice than are looked at at once."""
        genuine = duplicate_keys.keys_of

        def alike(*arguments: Any) -> Any:
            keys = genuine(*arguments)
            return type(keys)(keys.first % 3, keys.second)

        monkeypatch.setattr(duplicate_keys, "keys_of", alike)
        monkeypatch.setattr(duplicate_keys, "_AT_ONCE", 1)
        text = PhysicalColumn(
            name="c", physical="c", field_id=None, arrow=pa.string(), has_statistics=False
        )
        for values, double in ((["a", "b", "c", "d", "e", "f"], None), (["a", "b", "b"], "'b'")):
            pa.parquet.write_table(pa.table({"c": values}), tmp_path / "f")
            look = ShareOfKeys(
                uri=str(tmp_path),
                open_place=StorageOpener({}),
                paths=("f",),
                columns=(text,),
                shares=1,
            )
            assert look(0) == double


def test_an_opener_shows_no_secret(uri: str) -> None:
    opener = StorageOpener({"AWS_SECRET_ACCESS_KEY": "s3cret"})
    assert "s3cret" not in repr(opener)
    assert pickle.loads(pickle.dumps(opener)).options == opener.options
    assert isinstance(opener(uri), LocalStorage)
    assert read_log(opener(uri)) is not None


def test_a_key_of_null_is_refused_by_the_part_that_has_it(
    uri: str, engine: MergeOnWriteEngine
) -> None:
    added = change(ID, V, column("n", "int"), key=("n",))
    with pytest.raises(TidelakeError, match=r"table shop\.orders: its key .*\(n\).* have NULL"):
        engine.alter(ddl(uri, added, map_parts=scattered(random.Random(3))))
    assert DeltaTable(uri).version() == 12
