"""Storage fails at any write, and the same engine goes on: it keeps nothing by halves."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

from coordination.errors import TidelakeError, TryAgain
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.log import commit as commits
from sinks.merge_on_write.log.reader import read_log
from sinks.merge_on_write.upkeep.fold import fold
from sinks.storage.local_storage import LocalStorage
from sinks.target.engine_port import Applied, Skipped
from tests.sinks.merge_on_write.log_tables import differences
from tests.sinks.merge_on_write.orders import UPSERTED, Changes, changed, rows_of, write

LATER: Changes = {12: None, 34: "later", 99: "later", 300: "later"}
FULL = OSError(errno.ENOSPC, "No space left on device")


class FullDisk(LocalStorage):
    """Some writes go through, then so many fail (the put after it was made, if ``late``)."""

    def __init__(self, root: str, good: int, bad: int, *, late: bool) -> None:
        super().__init__(root)
        self.good, self.bad, self.late = good, bad, late

    def write(self, path: str, data: Any) -> None:
        if not path.startswith("_delta_log/"):
            self._count()
        super().write(path, data)

    def create(self, path: str, data: Any) -> bool:
        if not self.late:
            self._count()
        made = super().create(path, data)
        if self.late:
            self._count()
        return made

    def _count(self) -> None:
        self.good -= 1
        if self.good < 0 and self.bad > 0:
            self.bad -= 1
            raise FULL


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("bad", [1, 20])
def test_a_write_that_failed_is_tried_again(
    template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: int, late: bool
) -> None:
    monkeypatch.setattr(commits, "PAUSE_S", 0.0)
    before = rows_of(template)
    for good in range(5):
        uri = str(shutil.copytree(template, tmp_path / str(good)))
        engine = MergeOnWriteEngine({}, keeps_up=False)
        table = engine.table(uri)
        table.storage = FullDisk(uri, good, bad, late=late)
        try:
            engine.apply(write(uri, 100, UPSERTED))
        except (OSError, TidelakeError, TryAgain):
            assert rows_of(uri) in (before, changed(before, UPSERTED))
        table.storage.bad = 0
        assert isinstance(engine.apply(write(uri, 100, UPSERTED)), Applied | Skipped)
        assert rows_of(uri) == changed(before, UPSERTED)
        table.storage = FullDisk(uri, good, bad, late=late)
        try:
            fold(table, ("id",))
        except OSError:
            assert rows_of(uri) == changed(before, UPSERTED)
        table.storage = LocalStorage(uri)
        assert isinstance(engine.apply(write(uri, 101, LATER)), Applied)
        assert rows_of(uri) == changed(before, UPSERTED, LATER)
        replayed = read_log(table.storage)
        assert replayed is not None
        assert differences(table.state, replayed, tombstones=False) == []
        engine.close()
