"""Positions of a first copy: the same after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordination.model import Ts
from streaming.source.dump.chunk_files import StagingFull
from streaming.spans.copies.moments import Begins, Moment
from streaming.spans.copies.settled_copy import is_of_a_copy

ORDERS = {"name": ["shop", "orders"], "columns": ["id"]}
ORDERS_ALTERED = {"name": ["shop", "orders"], "columns": ["id", "note"]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "begins.json"


def never() -> Moment:
    raise AssertionError("it is known")


def test_where_a_copy_began_is_made_once(file: Path) -> None:
    made = ("a server", Moment(5, Ts(100)))
    assert Begins(file).first("a server", lambda: Moment(5, Ts(100))) == made
    assert Begins(file).first("another server", never) == made


def test_a_table_begins_where_its_copy_first_did(file: Path) -> None:
    assert Begins(file).of(ORDERS, now=5) == 5
    assert Begins(file).of(ORDERS, now=9) == 5
    assert Begins(file).of(dict(reversed(ORDERS.items())), now=9) == 5


def test_one_that_was_altered_begins_anew(file: Path) -> None:
    begins = Begins(file)
    begins.of(ORDERS, now=5)
    assert begins.of(ORDERS_ALTERED, now=9) == 9


def test_one_that_is_forgotten_begins_anew_and_no_other_does(file: Path) -> None:
    begins = Begins(file)
    begins.of(ORDERS, now=5)
    begins.of(ORDERS_ALTERED, now=6)
    begins.forget(ORDERS)
    begins.forget({"name": ["shop", "never seen"]})
    assert (Begins(file).of(ORDERS, now=9), Begins(file).of(ORDERS_ALTERED, now=9)) == (9, 6)


def test_a_file_that_is_none_of_these_is_refused(file: Path) -> None:
    file.write_text("{")
    with pytest.raises(ValueError, match="Expecting"):
        Begins(file)


def test_a_full_disk_is_waited_for(file: Path) -> None:
    part = file.with_suffix(".part")
    part.symlink_to("/dev/full")
    with pytest.raises(StagingFull, match=r"no room in the staging folder .*: free some space"):
        Begins(file).first("a server", lambda: Moment(5, Ts(100)))
    part.unlink()
    part.touch()  # as a write leaves it that a full disk or a kill has ended
    assert Begins(file).server is None
    assert is_of_a_copy(file.parent)
    assert Begins(file).first("a server", lambda: Moment(6, Ts(200)))[1].position == 6
