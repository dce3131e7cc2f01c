"""Bodies of blocks in files: whole, in order, and gone with their job; or sent along."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordination.model import TableName
from streaming.protocols.contract import Block, Kind
from streaming.source import body_files
from streaming.source.body_files import BodyFile, BodyFolder, InFile


def block(body: bytes | None, first: int = 0) -> Block:
    return Block(kind=Kind.ROW, part="t/0", name=TableName("a", "b"), first=first, body=body)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BodyFolder]:
    monkeypatch.setattr(body_files.tempfile, "tempdir", str(tmp_path))
    one = BodyFolder(is_shared=True)
    yield one
    one.close()
    assert os.listdir(tmp_path) == []


def sent(results: list[Block | InFile]) -> list[Block | InFile]:
    return pickle.loads(pickle.dumps(results))  # type: ignore[no-any-return]


def files(folder: BodyFolder) -> list[str]:
    assert folder.path is not None
    return os.listdir(folder.path)


def test_two_tasks_come_back_whole_and_in_order(folder: BodyFolder):
    one, two = BodyFile(folder.path), BodyFile(folder.path)
    bodies = [b"a" * 3, None, b"", b"b" * 100_000, b"c"]
    results = [
        file.put(block(body, each)) for each, body in enumerate(bodies) for file in (one, two)
    ]
    one.close()
    two.close()
    assert {type(each) for each in results} == {Block, InFile}
    assert len(files(folder)) == 2
    found = folder.whole(sent(results))
    assert [(each.first, each.body) for each in found if isinstance(each, Block)] == [
        (each, body) for each, body in enumerate(bodies) for _ in range(2)
    ]
    folder.clear()
    assert files(folder) == []


def test_what_a_task_yields_besides_blocks_stays_as_it_is(folder: BodyFolder):
    file = BodyFile(folder.path)
    failure = "a failure"
    found = folder.whole([file.put(block(b"x")), failure])
    assert isinstance(found[0], Block)
    assert (found[0].body, found[1]) == (b"x", failure)
    file.close()


def test_executors_elsewhere_send_bodies_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(body_files.tempfile, "tempdir", str(tmp_path))
    folder = BodyFolder(is_shared=False)
    one = block(b"x")
    assert BodyFile(folder.path).put(one) is one
    assert folder.whole([one]) == [one]
    folder.clear()
    folder.close()
    assert os.listdir(tmp_path) == []


def test_a_full_disk_sends_the_rest_along(folder: BodyFolder, monkeypatch: pytest.MonkeyPatch):
    file, left, write = BodyFile(folder.path), 150, os.pwrite

    def until_full(handle: int, data: bytes, offset: int) -> int:
        nonlocal left
        if left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(handle, data[:left], offset)
        left -= written
        return written

    monkeypatch.setattr(body_files.os, "pwrite", until_full)
    blocks = [block(b"a" * 100, 0), block(b"b" * 100, 1), block(b"c", 2)]
    results = [file.put(each) for each in blocks]
    file.close()
    assert [type(each) for each in results] == [InFile, Block, Block]
    assert [each.body for each in folder.whole(results)] == [each.body for each in blocks]


def test_without_its_folder_a_task_sends_bodies_along(folder: BodyFolder):
    folder.close()  # as who cleans temporary folders does
    one = block(b"x")
    assert BodyFile(folder.path).put(one) is one
    folder.clear()


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_file_that_is_gone_is_an_error(folder: BodyFolder, is_cut: bool):
    file = BodyFile(folder.path)
    result = file.put(block(b"x" * 10))
    file.close()
    assert isinstance(result, InFile)
    if is_cut:
        os.truncate(result.path, 5)
    else:
        os.unlink(result.path)
    with pytest.raises(OSError, match=result.path):
        folder.whole([result])
