"""A table that keeps deleted rows gets another key: in files that were just written, deleted rows
give way to the rows that have their new key.

They are found share by share, as doubles are (``duplicate_keys``), and taken out in vectors. The
row that is there stays; of deleted rows alone the one that changed last. Two rows that are there
and have one new key are an error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from sinks.merge_on_write.alter.duplicate_keys import ShareOfKeys, doubled, share_of
from sinks.merge_on_write.alter.rewrite import PartMapper, PartRewrite
from sinks.merge_on_write.files.file_cache import DeletedRows, mark
from sinks.merge_on_write.files.statistics import rows_in
from sinks.merge_on_write.log.actions import DataFile
from sinks.merge_on_write.log.physical_schema import PhysicalColumn
from sinks.target.write_mode import ROW_DELETED, ROW_TS
from sinks.types.key_hash import Keys, Ordinals, Words
from sinks.types.last_per_key import last_per_key


@dataclass(frozen=True, slots=True, kw_only=True)
class SurplusOfShare:
    """Looks for the deleted rows of a share that have the key of a row that stays. Can be
    pickled."""

    share: ShareOfKeys
    marks: tuple[PhysicalColumn, ...]  # ``ROW_DELETED``, and ``ROW_TS`` if the table has it

    def __call__(self, number: int) -> dict[int, BitMap64]:
        """By the number of a file: which of its rows go. Raises TidelakeError."""
        twice, gone = self.share.twice(number), defaultdict[int, BitMap64](BitMap64)
        if not len(twice):
            return {}
        kept: list[Words | Ordinals] | None = None  # key, marks and places of those so far
        for (file, begin), arrays, keys in self.share.pieces(self.marks):
            firsts = keys.first.view(np.uint64)
            at = np.searchsorted(twice, firsts)
            rows = np.flatnonzero(twice[np.minimum(at, len(twice) - 1)] == firsts)
            second = np.zeros(len(keys), np.uint64) if keys.second is None else keys.second
            own = arrays[len(arrays) - len(self.marks) :]
            weights = [_weight(*each) for each in zip(self.marks, own, strict=True)]
            files, places = np.full(len(keys), file), np.arange(begin, begin + len(keys))
            here = [each[rows] for each in (firsts, second, *weights, files, places)]
            if kept is not None:
                here = [np.concatenate(both) for both in zip(kept, here, strict=True)]
            stay = last_per_key(Keys(here[0], here[1]), here[2:-2])
            goes = np.ones(len(here[0]), np.bool_)
            goes[stay] = False
            if len(alive := here[0][goes & (here[2] == 0)]):
                raise doubled(self.share.columns, self.share.double(alive[:1].astype(np.uint64)))
            for each in np.unique(here[-2][goes]).tolist():
                gone[each] |= BitMap64(here[-1][goes & (here[-2] == each)].astype(np.uint64))
            kept = [each[stay] for each in here]
        return dict(gone)


def _weight(column: PhysicalColumn, values: pa.Array) -> Ordinals:
    """The greater it is, the rather the row stays."""
    numbers: Ordinals = pc.fill_null(values.cast(pa.int64()), 0).to_numpy()
    return -numbers if column.name == ROW_DELETED else numbers


def take_deleted_out(
    written: list[DataFile],
    columns: Sequence[PhysicalColumn],
    work: PartRewrite,
    map_parts: PartMapper,
) -> None:
    """Puts files with vectors in the place of files that have rows to go. The arguments are those
    of ``duplicate_keys.share_of``."""
    by_name = {column.name: column for column in work.new.shape.columns}
    marks = tuple(by_name[name] for name in (ROW_DELETED, ROW_TS) if name in by_name)
    surplus = SurplusOfShare(share=share_of(written, columns, work), marks=marks)
    gone: dict[int, BitMap64] = {}
    size_bytes = sum(each.size for each in written)
    with closing(map_parts(surplus, range(surplus.share.shares), size_bytes)) as found:
        for share in found:
            for file, rows in share.items():
                gone[file] = gone.get(file, BitMap64()) | rows
    storage = work.open_place(work.uri)
    deleted = {
        written[file].path: DeletedRows.none(rows_in(written[file].stats) or 0).with_more(
            np.asarray(rows.to_array(), dtype=np.int64)
        )
        for file, rows in gone.items()
    }
    whole = [path for path, each in deleted.items() if each.mask.all()]
    marked = {path: each for path, each in deleted.items() if path not in whole}
    files = {each.path: each for each in written}
    now = {file.path: file for file, _ in mark(storage, files, marked)}
    written[:] = [now.get(path, file) for path, file in files.items() if path not in whole]
    storage.delete(whole)
