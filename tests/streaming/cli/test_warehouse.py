"""``tidelake warehouse`` finds tables that are not whole in their own folders, and mends them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.rename import rename
from sinks.merge_on_write.log.reader import read_log
from sinks.merge_on_write.upkeep.outside_files import OutsideFiles, outside_files
from sinks.storage.open_storage import open_storage
from tests.services.s3_server import S3Server
from tests.sinks.merge_on_write.ddls import C
from tests.sinks.merge_on_write.renames import contents, order, put, two_tables

Command = Callable[..., tuple[int, str, str]]


def renamed(folder: str, options: dict[str, str]) -> tuple[int, int]:
    """``a`` to ``c``, which goes on; how many files it has brought along, and their bytes."""
    two_tables(folder, options)
    assert [*outside_files(folder.removesuffix("/shop"), options)] == []
    state = read_log(open_storage(f"{folder}/a", options))
    assert state is not None
    vectors = [each for file in state.files.values() if (each := file.deletion_vector)]
    data = [each.size for each in state.files.values()]
    engine = MergeOnWriteEngine(options, keeps_up=False)
    rename(engine, order(folder, {"a": "c"}))
    put(engine, f"{folder}/c", C, {199: "of its own"})
    engine.close()
    places = {each.path_or_inline for each in vectors}
    return len(data) + len(places), sum(data) + sum(each.size_in_bytes for each in vectors)


def test_files_of_a_renamed_table_are_listed(command: Command, tmp_path: Path) -> None:
    lake = tmp_path / "a lake~41 é"
    files, size_bytes = renamed(f"{lake}/shop", {})
    code, out, _ = command("warehouse", "check", "--sink-uri", f"delta://{lake}")
    head, line = out.splitlines()
    assert (code, head.split()) == (3, ["table", "folder", "files", "size_bytes"])
    assert line.split() == ["shop/c", "shop/a", str(files), str(size_bytes)]


def test_files_of_a_renamed_table_are_gathered(command: Command, tmp_path: Path) -> None:
    """And what cannot be is named, with the reason."""
    lake = tmp_path / "a lake~41 é"
    renamed(f"{lake}/shop", {})
    before = contents(f"{lake}/shop")
    address = ("--sink-uri", f"delta://{lake}")
    hidden = Path(f"{lake}/shop/a").rename(tmp_path / "hidden")
    code, out, err = command("warehouse", "gather", *address)
    assert (code, out.count("shop/c")) == (3, 1)
    assert err.startswith("shop/c: ")
    assert err.count("\n") == 1
    hidden.rename(f"{lake}/shop/a")
    for verb in ("gather", "check", "gather"):
        code, out, err = command("warehouse", verb, *address, "--format", "json")
        assert (code, json.loads(out), err) == (0, {"rows": []}, "")
    assert contents(f"{lake}/shop") == before


def test_tables_that_are_whole_are_not(command: Command, tmp_path: Path) -> None:
    two_tables(tmp_path / "shop")
    check = ("warehouse", "check", "--sink-uri", f"delta://{tmp_path}", "--format", "json")
    code, out, err = command(*check)
    assert (code, json.loads(out), err) == (0, {"rows": []}, "")


def test_a_place_without_tables_is_not_taken_for_whole(command: Command, tmp_path: Path) -> None:
    """As where --sink-uri has a slip."""
    for place in (tmp_path, tmp_path / "nowhere"):
        code, out, err = command("warehouse", "check", "--sink-uri", f"delta://{place}")
        assert (code, out) == (1, "")
        assert f"there is no table in {place}: check --sink-uri" in err


@pytest.mark.more
def test_it_looks_into_an_object_store(s3: S3Server) -> None:
    lake = f"s3://{s3.bucket}/{uuid4()}"
    files, size_bytes = renamed(f"{lake}/shop", s3.options)
    assert [*outside_files(lake, s3.options)] == [
        OutsideFiles(table="shop/c", folder="shop/a", files=files, size_bytes=size_bytes)
    ]
