"""What a look finds, and what it costs."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from conf.sources.storage_uri import StorageSettings
from coordination.errors import ConfigError
from coordination.model import TableName
from streaming.source.storage.layout import (
    SCHEMAS,
    Packing,
    Place,
    folder_of,
    partition_of,
    schema_position,
    version_of,
)
from streaming.source.storage.survey import Survey
from tests.streaming.source.storage.counted_tree import ROW, CountedTree

V1, V2, V3 = 470_000_000_000_000_001, 470_000_000_000_000_002, 470_000_000_000_000_003
DAY = StorageSettings(folder="/unused", protocol="canal-json")
NONE = StorageSettings(folder="/unused", protocol="canal-json", date_separator="none")


def file(table: str, version: int, date: str, index: int, *, of: str = "") -> str:
    at = f"shop/{table}/{version}/{date}/".replace("//", "/")
    return f"{at}CDC{f'_{of}_' if of else ''}{index:020}.json"


def schema(table: str, version: int) -> str:
    return f"shop/{table}/meta/schema_{version}_{7:010}.json"


def ends(survey: Survey, part: str) -> tuple[Place, int]:
    return survey.packing.place(survey.look().ends[part])


@pytest.mark.parametrize("files", [20, pytest.param(200, marks=pytest.mark.soak)])
def test_many_files_are_listed_once_and_then_only_what_is_new(files: int):
    """100,000 of them, or a million."""
    dates = [f"2026-{month:02}-{day:02}" for month in (1, 2) for day in range(1, 26)]
    paths = [
        file(f"t{table:03}", V1, date, index)
        for table in range(100)
        for date in dates
        for index in range(1, files + 1)
    ]
    tree = CountedTree([*paths, *(schema(f"t{table:03}", V1) for table in range(100))])
    tree.checkpoint(V2)
    survey = Survey(DAY, tree)
    begun_s = time.monotonic()
    look = survey.look()
    assert len(look.ends) == 101
    lists, reads = tree.counts()
    assert lists <= 5 * files + 2  # pages
    assert reads == 1 + 100  # metadata, and the first row of each part
    assert time.monotonic() - begun_s < 60
    survey.look()
    assert tree.counts() == (0, 1), "nothing is listed while the checkpoint-ts stands"
    for number in range(3):
        tree.put(file("t007", V1, "2026-02-25", files + 1 + number))
        tree.checkpoint(V2 + 1 + number)
        look = survey.look()
        assert tree.counts() == (1 + 1 + 100 + 1, 1)  # root, database, tables, its schema files
        assert survey.packing.place(look.ends[f"shop/t007/{V1}"])[0].index == files + 1 + number
    begun_s = time.monotonic()
    tree.checkpoint(V3 + 10)
    survey.look()
    assert time.monotonic() - begun_s < 2


def test_new_versions_dates_partitions_and_tables_are_found():
    tree = CountedTree([file("a", V1, "2026-01-01", 1), file("p", V1, "129/2026-01-01", 1)])
    tree.checkpoint(V1)
    survey = Survey(DAY, tree)
    assert set(survey.look().identities) == {f"shop/a/{V1}", f"shop/p/{V1}/129"}
    tree.put(file("a", V1, "2026-01-02", 1))
    tree.put(file("p", V1, "130/2026-01-02", 1))
    tree.put(file("n", V1, "2026-01-02", 1))
    tree.checkpoint(V1 + 1)
    look = survey.look()
    assert set(look.identities) == {
        *(f"shop/{each}" for each in (f"a/{V1}", f"n/{V1}", f"p/{V1}/129", f"p/{V1}/130")),
    }
    assert ends(survey, f"shop/a/{V1}") == (Place(Packing("day").day("2026-01-02") or 0, 1), 10)
    # A DDL of each, and rows of both versions that came between two looks.
    for table, folder in (("a", ""), ("p", "131/")):
        tree.put(file(table, V1, f"{folder}2026-01-02", 2))
        tree.put(schema(table, V2))
        tree.put(file(table, V2, f"{folder}2026-01-02", 1))
        tree.put(schema(table, V3))
        tree.put(file(table, V3, f"{folder}2026-01-02", 1))
    tree.put(file("p", V1, "131/2026-01-02", 1))
    tree.checkpoint(V3)
    look = survey.look()
    for part in (f"a/{V1}", f"a/{V2}", f"a/{V3}", f"p/{V1}/131", f"p/{V2}/131", f"p/{V3}/131"):
        assert f"shop/{part}" in look.identities
    assert look.ends[SCHEMAS] == schema_position(V3)
    assert len(survey.schema_files) == 4


def test_a_version_is_looked_at_until_the_checkpoint_is_behind_the_next_one():
    tree = CountedTree([file("a", V1, "2026-01-01", 1)])
    tree.checkpoint(V1)
    survey = Survey(DAY, tree)
    survey.look()
    tree.put(schema("a", V2))
    tree.put(file("a", V2, "2026-01-01", 1))
    tree.checkpoint(V1 + 0)
    survey.look()
    tree.put(file("a", V1, "2026-01-01", 2))  # before the DDL
    tree.checkpoint(V2)
    assert survey.packing.place(survey.look().ends[f"shop/a/{V1}"])[0].index == 2
    tree.put(file("a", V1, "2026-01-01", 3))  # again, after a restart
    tree.checkpoint(V2 + 1)
    assert survey.packing.place(survey.look().ends[f"shop/a/{V1}"])[0].index == 2
    tree.checkpoint(V2 - 1)  # the restart is seen
    assert survey.packing.place(survey.look().ends[f"shop/a/{V1}"])[0].index == 3


def test_dispatchers_share_a_folder():
    tree = CountedTree([file("a", V1, "2026-01-01", 1, of=f"d-{n}") for n in range(3)])
    tree.checkpoint(V1)
    survey = Survey(DAY, tree)
    assert set(survey.look().identities) == {f"shop/a/{V1}#d-{n}" for n in range(3)}
    tree.put(file("a", V1, "2026-01-02", 1, of="d-2"))
    tree.put(file("a", V1, "2026-01-01", 2, of="d-0"))
    tree.checkpoint(V1 + 1)
    look = survey.look()
    assert survey.packing.place(look.ends[f"shop/a/{V1}#d-0"])[0].index == 2
    assert survey.packing.place(look.ends[f"shop/a/{V1}#d-2"])[0].index == 1


def test_a_file_that_a_listing_has_missed_is_found():
    tree = CountedTree([file("a", V1, "", 1)])
    tree.checkpoint(V1)
    survey = Survey(NONE, tree)
    survey.look()
    tree.put(file("a", V1, "", 3))
    tree.checkpoint(V1 + 1)
    log = survey.logs[f"shop/a/{V1}"]
    survey.look()
    log = survey.logs[f"shop/a/{V1}"]
    assert log.missing(log.beginning) == Place(0, 2)
    tree.counts()
    tree.checkpoint(V1 + 2)
    survey.look()
    assert tree.counts()[0] <= 4, "it is not looked for again and again"


def test_what_is_gone_is_listed_anew():
    tree = CountedTree([file("a", V1, "", 1), file("b", V1, "", 1)])
    tree.checkpoint(V1)
    survey = Survey(NONE, tree)
    survey.look()
    tree.paths.remove(file("b", V1, "", 1))
    tree.checkpoint(V1 + 1)
    assert set(survey.look().identities) == {f"shop/a/{V1}"}


def test_metadata_that_is_being_written_changes_nothing():
    tree = CountedTree([file("a", V1, "", 1)])
    survey = Survey(NONE, tree)
    assert survey.look().checkpoint_ts == 0
    for text in (b"", b"{", b'{"checkpoint-ts":"x"}', b"[]", b'{"checkpoint-ts":-1}'):
        tree.put("metadata", text)
        assert survey.look().checkpoint_ts == 0
    tree.checkpoint(V2)
    assert survey.look().checkpoint_ts == V2
    tree.put("metadata", b'{"checkpo')
    assert survey.look().checkpoint_ts == V2


def test_a_first_row_that_is_not_whole_is_no_part_yet():
    tree = CountedTree()
    tree.put(file("a", V1, "", 1), ROW[:4])
    survey = Survey(NONE, tree)
    assert not survey.look().identities
    tree.put(file("a", V1, "", 1), ROW)
    assert set(survey.look().identities) == {f"shop/a/{V1}"}


@pytest.mark.parametrize("text", [b"", ROW[:4]])
def test_a_first_file_without_a_whole_row_hides_no_later_one(text: bytes):
    """TiCDC was killed, and goes on with the next file."""
    tree = CountedTree([file("a", V1, "", 2)])
    tree.put(file("a", V1, "", 1), text)
    tree.checkpoint(V1)
    part = f"shop/a/{V1}"
    look = Survey(NONE, tree).look()
    assert look.identities[part].place == Place(0, 1)
    assert Packing("none").place(look.ends[part]) == (Place(0, 2), len(ROW))


def test_a_name_may_have_a_sharp_sign():
    names = ("a#b", "c")
    tree = CountedTree([file(name, V1, "2026-01-01", 1) for name in names])
    tree.put(file("d#", V1, "129/2026-01-01", 1, of="d-1"))
    tree.checkpoint(V1)
    survey = Survey(DAY, tree)
    parts = {*(f"shop/{name}/{V1}" for name in names), f"shop/d#/{V1}/129#d-1"}
    assert set(survey.look().identities) == parts
    assert {version_of(each) for each in parts} == {V1}
    assert {partition_of(each) for each in parts} == {"", "129"}
    tree.put(file("a#b", V1, "2026-01-01", 2))
    tree.put(file("d#", V1, "129/2026-01-02", 1, of="d-1"))
    tree.checkpoint(V1 + 1)
    assert ends(survey, f"shop/a#b/{V1}")[0].index == 2
    assert ends(survey, f"shop/d#/{V1}/129#d-1")[0].day > ends(survey, f"shop/c/{V1}")[0].day


def test_folders_may_be_named_by_ids():
    """A database whose name is a number besides."""
    paths = [f"{of}/{V1}/2026-01-01/CDC{1:020}.json" for of in ("118", "12/a", f"12/p/{V1}/129")]
    tree = CountedTree([paths[0], paths[1], paths[2].replace(f"/{V1}/2026", "/2026")])
    tree.put(f"118/meta/schema_{V1}_{7:010}.json")
    tree.put(f"shop/meta/schema_{V1}_{7:010}.json")
    tree.checkpoint(V1)
    survey = Survey(replace(DAY, by_id=True), tree)
    parts = {f"118/{V1}", f"12/a/{V1}", f"12/p/{V1}/129"}
    assert set(survey.look().identities) == parts
    assert {each.name for each in survey.schema_files} == {None, TableName("shop", "")}
    assert {version_of(each) for each in parts} == {V1}
    assert {folder_of(each) for each in parts} == {"118", "12/a", "12/p"}
    tree.put(f"118/{V1}/2026-01-01/CDC{2:020}.json")
    tree.put(f"118/meta/schema_{V2}_{7:010}.json")
    tree.put(f"118/{V2}/2026-01-01/CDC_d-1_{1:020}.json")
    tree.put(f"140/{V2}/2026-01-01/CDC{1:020}.json")
    tree.checkpoint(V1 + 1)
    assert ends(survey, f"118/{V1}")[0].index == 2
    assert {f"118/{V2}#d-1", f"140/{V2}"} < set(survey.last.identities)


def test_a_look_at_folders_that_are_named_by_ids_costs_a_list_of_each():
    tree = CountedTree(f"{of}/{V1}/2026-01-01/CDC{1:020}.json" for of in range(100, 200))
    tree.checkpoint(V1)
    survey = Survey(replace(DAY, by_id=True), tree)
    survey.look()
    tree.counts()
    tree.put(f"150/{V1}/2026-01-01/CDC{2:020}.json")
    tree.checkpoint(V1 + 1)
    assert ends(survey, f"150/{V1}")[0].index == 2
    assert tree.counts() == (1 + 100, 1)


def test_an_id_that_is_not_told_is_one_line():
    with pytest.raises(ConfigError, match="give use-table-id-as-path=true, as TiCDC has it"):
        Survey(DAY, CountedTree([f"118/{V1}/2026-01-01/CDC{1:020}.json"])).look()


def test_another_date_separator_is_one_line():
    with pytest.raises(ConfigError, match="give date-separator=day, as TiCDC has it"):
        Survey(NONE, CountedTree([file("a", V1, "2026-01-01", 1)])).look()
    with pytest.raises(ConfigError, match="is in no folder of a day"):
        Survey(DAY, CountedTree([file("a", V1, "", 1)])).look()


def test_positions_rise_with_dates_and_numbers():
    for separator, dates in (
        ("none", [None]),
        ("year", ["2025", "2026"]),
        ("month", ["2025-12", "2026-01"]),
        ("day", ["2025-12-31", "2026-01-01"]),
    ):
        packing = Packing(separator)  # type: ignore[arg-type]
        days = [0 if date is None else packing.day(date) for date in dates]
        places = [Place(day or 0, index) for day in days for index in (1, 2, 1 << 17)]
        at = [packing.position(each, offset) for each in places for offset in (0, 9, 1 << 29)]
        assert at == sorted(set(at))
        assert max(at) < 1 << 63
        assert [packing.place(each) for each in at[::3]] == [(each, 0) for each in places]
    with pytest.raises(ConfigError, match="raise TiCDC's flush-interval"):
        Packing("day").position(Place(3000, 1 << 18), 0)
