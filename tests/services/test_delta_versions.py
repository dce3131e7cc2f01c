"""Versions that are read from the log are those that deltalake reads."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.services.delta_rows import read_rows
from tests.services.delta_versions import DeltaVersions

TYPE = pa.schema({"a": pa.int64(), "b": pa.string(), "m": pa.map_(pa.string(), pa.int64())})


def write(uri: Path, number: int, mode: str) -> None:
    rows = [{"a": number, "b": None, "m": None}, {"a": -1, "b": "x", "m": [("k", number)]}]
    write_deltalake(str(uri), pa.Table.from_pylist(rows, TYPE), mode=mode)  # type: ignore[call-overload]


def test_each_version_comes_once_and_as_it_was(tmp_path: Path) -> None:
    versions, seen = DeltaVersions(tmp_path / "t"), {}
    assert list(versions.further()) == []
    for number in range(12):
        write(tmp_path / "t", number, "append" if number % 3 else "overwrite")
        if number == 5:
            DeltaTable(str(tmp_path / "t")).optimize.compact()
        if number % 4 == 0:
            seen |= {each.number: each.rows for each in versions.further()}
    seen |= {each.number: each.rows for each in versions.further()}
    assert list(versions.further()) == []
    assert len(seen) == 13
    for number, rows in seen.items():
        assert sorted(map(repr, rows)) == sorted(map(repr, read_rows(tmp_path / "t", number)))


def test_what_upkeep_removed_is_passed_over(tmp_path: Path) -> None:
    versions = DeltaVersions(tmp_path / "t")
    for number in range(6):
        write(tmp_path / "t", number, "append")
    DeltaTable(str(tmp_path / "t")).create_checkpoint()
    write(tmp_path / "t", 6, "append")
    for number in range(5):
        (tmp_path / "t" / "_delta_log" / f"{number:020}.json").unlink()
    (at_5, at_6) = versions.further()
    assert (at_5.number, len(at_5.rows), at_6.number, len(at_6.rows)) == (5, 12, 6, 14)
