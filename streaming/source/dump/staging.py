"""The folder of one table's copy: Parquet files, and a manifest of all that was done.

    orders/manifest.jsonl      the table, the plan's beginning; then a line for each outcome
    orders/000004-0.parquet    a chunk: written as ….part, flushed to the disk, renamed, then noted

A file that the manifest does not name does not count, and the next opening deletes it. So a copy
that was killed at any point goes on with the chunks that are not noted.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from coordination.model import TableName
from streaming.source.dump import manifest
from streaming.source.dump.chunk_files import ChunkFiles, StagedFile, refusals
from streaming.source.dump.chunks import ChunkPlan, Outcome, Step
from streaming.source.dump.source_table import SourceTable

MANIFEST: Final = "manifest.jsonl"


class StagedTable:
    """The copy of one table as far as it is. One thread owns it."""

    def __init__(self, folder: Path, table: SourceTable) -> None:
        """Opens it. An earlier copy counts if it is of a table with the same columns and key.

        Raises StagingFull or StagingFailed, as all methods do.
        """
        self.table = table
        self.folder = folder / table_folder(table.name)
        self._manifest = self.folder / MANIFEST
        self.plan: ChunkPlan | None = None  # None: not begun
        self.files: tuple[StagedFile, ...] = ()
        self.note: Mapping[str, Any] | None = None  # what the caller noted with an outcome
        self._next = 0
        with refusals(self.folder):
            self._read_manifest()
            self._delete_unnoted()

    def begin(self, plan: ChunkPlan) -> None:
        """Note the plan's beginning; what was there of an earlier table is deleted."""
        with refusals(self.folder):
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            line = {
                "table": manifest.described(self.table),
                "plan": manifest.plan_to_json(plan),
            }
            manifest.append(self._manifest, line, wait=plan.is_done)
        self.plan = plan

    def done(
        self,
        outcome: Outcome,
        files: Sequence[StagedFile] = (),
        note: Mapping[str, Any] | None = None,
    ) -> None:
        """Note an outcome with its files; the last one of a table is on the disk then."""
        assert self.plan is not None
        line = {**manifest.outcome_to_json(outcome), "files": [asdict(file) for file in files]}
        line = {**line, "note": note} if note else line
        with refusals(self.folder):
            is_last = self.plan.after(outcome).is_done
            manifest.append(self._manifest, line, wait=is_last)
        self._take(outcome, files, note)

    def next_step(self, ready: int) -> Step | None:
        """As the plan's; it runs from now on."""
        assert self.plan is not None
        step, self.plan = self.plan.next_step(ready)
        return step

    def again(self, step: Step) -> None:
        """A step has failed."""
        assert self.plan is not None
        self.plan = self.plan.again(step)

    def new_files(self) -> ChunkFiles:
        """For the next chunk; another thread may write them."""
        self._next += 1
        return ChunkFiles(self.folder, f"{self._next:06d}")

    def forget(self) -> None:
        """Its rows do not count any more; afterwards it is not begun."""
        with refusals(self.folder):
            shutil.rmtree(self.folder, ignore_errors=True)
        self.plan, self.files, self.note = None, (), None

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def _take(
        self, outcome: Outcome, files: Sequence[StagedFile], note: Mapping[str, Any] | None
    ) -> None:
        assert self.plan is not None
        self.plan = self.plan.after(outcome)
        self.files = (*self.files, *files)
        self.note = note or self.note

    def _read_manifest(self) -> None:
        begun, *lines = list(manifest.whole_lines(self._manifest)) or [{}]
        if begun.get("table") != manifest.described(self.table):
            return
        self.plan = manifest.plan_from_json(begun["plan"])
        for line in lines:
            files = [StagedFile(**file) for file in line["files"]]
            self._take(manifest.outcome_from_json(line), files, line.get("note"))

    def _delete_unnoted(self) -> None:
        if self.plan is None:
            return
        noted = {MANIFEST, *(file.name for file in self.files)}
        for path in self.folder.iterdir():
            if path.name not in noted:
                path.unlink()
        names = [int(file.name.partition("-")[0]) for file in self.files]
        self._next = max(names, default=0)


def is_of_a_table(folder: Path) -> bool:
    """Whether it holds a table's copy, or what is left of one."""
    return all(
        path.name == MANIFEST or path.suffix in (".parquet", ".part") for path in folder.iterdir()
    )


def table_folder(name: TableName) -> str:
    return f"{quote(name.schema, safe='')}.{quote(name.table, safe='')}"
