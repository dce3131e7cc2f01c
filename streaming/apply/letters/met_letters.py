"""How a batch changes the dead letters of its tables, around its commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from coordination.model import TableName
from streaming.apply.changes import TableChanges
from streaming.apply.letters.dead_letter_writer import DeadLetterWriter
from streaming.apply.letters.open_letters import OpenLetters
from streaming.apply.table_task import TableTask
from streaming.protocols.contract import Block

Changed = Sequence[tuple[TableTask, TableChanges]]


class MetLetters:
    """For the applying thread, except for ``telling``."""

    def __init__(self, writer: DeadLetterWriter, letters: OpenLetters) -> None:
        self._writer = writer
        self._letters = letters

    def forget(self, name: TableName) -> None:
        """Another may have written the table, or its shape is another one."""
        self._letters.forget(name)

    def telling(self, task: TableTask) -> TableTask:
        """The tasks, with the last changes if open letters may be met. In a change log only rows
        that a rewind brings again close letters; where rows are counted, none does."""
        is_met = not (task.is_log or task.schema.counts_rows) or self._writer.by.incarnation > 1
        return replace(task, tells_last=is_met and bool(self._writer.counts.get(task.name)))

    def add_messages(self, blocks: Sequence[Block]) -> None:
        self._writer.add_messages(blocks)
        for block in blocks:
            self._letters.forget(block.name)

    def add(self, changed: Changed) -> None:
        """The rows that cannot be applied."""
        tasks = {task.name: task for task, _ in changed}

        def added(letters: pa.Table) -> None:
            for name in {TableName(*each) for each in zip(*_names(letters), strict=True)}:
                of = tasks[name]
                if of.schema.key and not (of.is_log or of.schema.counts_rows):
                    is_schema = pc.equal(letters["schema_name"], name.schema)
                    is_table = pc.equal(letters["table_name"], name.table)
                    self._letters.add(name, letters.filter(pc.and_(is_schema, is_table)))

        self._writer.add_rows({task.name: found.errors for task, found in changed}, added)

    @contextmanager
    def met(self, changed: Changed, is_written: Callable[[TableName], bool]) -> Iterator[None]:
        """Around the commits of these changes: letters that they pass are noted before any of them,
        and letters that they bring in afterwards."""
        met = {}
        for task, found in changed:
            if found.last is not None and self._writer.counts.get(task.name):
                keys = self._letters.keys(task)
                met[task.name] = keys, keys.meet(found.last)
                self._letters.note_passed(*met[task.name])
        try:
            yield
        except BaseException:
            for name in met:
                self._letters.forget(name)
            raise
        for name, each in met.items():
            if is_written(name):
                self._letters.note_brought(*each)
            else:
                self._letters.forget(name)


def _names(letters: pa.Table) -> list[list[str]]:
    pairs = letters.select(["schema_name", "table_name"]).group_by(["schema_name", "table_name"])
    return [column.to_pylist() for column in pairs.aggregate([]).columns]
