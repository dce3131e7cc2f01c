"""The plain rows of one table, read by templates: what is the same for each protocol whose texts
are walked through side by side (``json_text/quote_scanner.py``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordination.model import TableName
from streaming.protocols.contract import Wanted
from streaming.protocols.json_text.plain_text import some
from streaming.protocols.json_text.quote_scanner import Cells, Indexes, Mask
from streaming.protocols.rows.alike import read_alike
from streaming.protocols.rows.blocks import key_of
from streaming.protocols.rows.parsed_message import Shape
from streaming.protocols.rows.row_arrays import RowArrays, struct


class Template(Protocol):
    """How the rows of a table look."""

    @property
    def shape(self) -> Shape: ...

    def read(
        self, values: pa.BinaryArray, positions: Indexes, key: Sequence[str] | None
    ) -> tuple[RowArrays, Indexes]:
        """The rows of messages that turn out to be plain, and the indices of those. Their old rows
        have the key's columns, or all; a value that was not sent is as in the new row."""
        ...


class Taking(Protocol):
    """What a `Collector` does with rows."""

    @property
    def wanted(self) -> Wanted: ...

    def take(self, name: TableName, shape: Shape, rows: RowArrays) -> None: ...

    def count(self, name: TableName, positions: Indexes, commit_ts: Indexes) -> None: ...


def read_table(
    values: pa.BinaryArray,
    places: Indexes,
    name: TableName,
    template_of: Callable[[int], Template | None],
    taking: Taking,
) -> Indexes:
    """Reads the rows of a wanted table; returns the places of the rest. ``template_of``: see
    `read_alike`."""

    def take(template: Template, part: Indexes) -> Indexes:
        key = key_of(template.shape, taking.wanted[name])
        rows, plain = template.read(some(values, part), part, key)
        if len(plain):
            taking.take(name, template.shape, rows)
        return plain

    return read_alike(values, places, template_of, take)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WalkedRows:
    """All messages of a walk, and which of them are right. ``old``: the cells of the rows at
    ``old_at``, by the names of ``data`` or none."""

    is_right: Mask
    positions: Indexes
    op: npt.NDArray[np.int8]
    commit_ts: Indexes
    data: Mapping[str, Cells]
    old: Mapping[str, Cells]
    old_at: Indexes
    checksums: Indexes | None = None

    def plain(self, key: Sequence[str] | None) -> tuple[RowArrays, Indexes]:
        """What `Template.read` returns."""
        data, old, old_at = self.data, self.old, self.old_at
        names = [name for name in (data if key is None else key) if name in data]
        if key is None:
            old = {name: each.filled_from(data[name], old_at) for name, each in old.items()}
        is_told = np.zeros(len(old_at), np.bool_)
        for name in names if old else ():
            is_told |= old[name].is_there
        at = np.flatnonzero(self.is_right)
        olds = np.flatnonzero(is_told & self.is_right[old_at])
        new = [each.take(at) for each in data.values()]
        kept = [old[name].take(olds) if old else pa.array([], pa.string()) for name in names]
        rows = RowArrays(
            positions=self.positions[at],
            op=self.op[at],
            commit_ts=self.commit_ts[at],
            data=struct([*data], new, len(at)),
            old=struct(names, kept, len(olds)),
            old_at=np.searchsorted(at, old_at[olds]),
            errors={},
            checksums=None if self.checksums is None else self.checksums[at],
        )
        return rows, at


@dataclass(slots=True)
class Kept:
    """Plain rows, until it is known how many rows the messages before them have."""

    wanted: Wanted
    rows: list[tuple[TableName, Shape, RowArrays]] = field(default_factory=list)
    counted: list[tuple[TableName, Indexes, Indexes]] = field(default_factory=list)

    def take(self, name: TableName, shape: Shape, rows: RowArrays) -> None:
        self.rows.append((name, shape, rows))

    def count(self, name: TableName, positions: Indexes, commit_ts: Indexes) -> None:
        self.counted.append((name, positions, commit_ts))
