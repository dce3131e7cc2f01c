"""Files outside of their table's folder, as a rename, a recovery or a kept DROP TABLE leaves them,
are written anew in it by folds: afterwards the folder alone is the table.

The files themselves stay, since older versions name them.
"""

from __future__ import annotations

from collections.abc import Callable

from coordination.errors import TidelakeError, TryAgain
from sinks.merge_on_write.log.file_locations import is_whole_in_table
from sinks.merge_on_write.log.pause import is_paused
from sinks.merge_on_write.table_handle import MAX_RACES, TableHandle
from sinks.merge_on_write.upkeep.fold import fold, paths_outside
from sinks.target.table_properties import TableProperties


def gather(table: TableHandle, left: Callable[[int], None] = lambda _: None) -> None:
    """All of them, while others may write the table. Blocks. Raises TidelakeError where this engine
    may not write the table, TryAgain where other commits came first too often. ``left`` is told how
    many are outside still."""
    lost = 0
    while lost < MAX_RACES:
        with table.lock:
            table.refresh()
            left(sum(not is_whole_in_table(each.file) for each in table.files.values()))
            if not paths_outside(table):
                return
            key = _sorted_by(table)
        lost = 0 if fold(table, key, outside=True) is not None else lost + 1
    raise TryAgain(f"other commits came first on {table.uri}, {MAX_RACES} times: try again")


def _sorted_by(table: TableHandle) -> tuple[str, ...]:
    metadata = table.state.metadata
    assert metadata is not None
    if is_paused(metadata):
        raise TidelakeError(f"the table at {table.uri} is paused: `tidelake table resume` first")
    told = TableProperties(properties=metadata.configuration)
    found = () if told.schema is None else told.form.sorted_by(told.schema.key)
    if not found or not set(found) <= {column.name for column in table.shape.columns}:
        raise TidelakeError(f"the table at {table.uri} is none of Tidelake's: write it anew")
    return found
