"""Which tables of a warehouse name files by an address, as a rename or a drop leaves them: such a
table is not whole in its own folder, and the files' own folders must stay where they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from coordination.errors import TidelakeError
from sinks.merge_on_write.log.file_locations import files_of, is_in_table
from sinks.merge_on_write.log.paths import LOG
from sinks.merge_on_write.log.reader import read_log
from sinks.merge_on_write.log.state import LogState
from sinks.storage.open_storage import open_storage

IN_WAREHOUSE: Final = 2  # parts of a table's path there: database and table


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideFiles:
    """What one table's newest version has. ``table`` and ``folder`` are paths in the warehouse; the
    path of a folder elsewhere is a whole one."""

    table: str
    folder: str
    files: int
    size_bytes: int


def outside_files(warehouse: str, storage_options: Mapping[str, str]) -> Iterator[OutsideFiles]:
    """By table and folder. Blocks: each table's log is read. Raises what `read_log` does, and
    TidelakeError where there is no table."""
    root, is_empty = open_storage(warehouse, storage_options), True
    for schema in root.inside("").folders:
        if schema.startswith("_"):  # control tables, and what other programs keep
            continue
        for name in root.inside(schema).folders:
            table = f"{schema}/{name}"
            if LOG.rstrip("/") not in root.inside(table).folders:
                continue
            state = read_log(open_storage(f"{warehouse}/{table}", storage_options))
            if state is not None:
                is_empty = False
                yield from _of_table(warehouse, table, state)
    if is_empty:
        raise TidelakeError(f"there is no table in {warehouse}: check --sink-uri")


def _of_table(warehouse: str, table: str, state: LogState) -> Iterator[OutsideFiles]:
    sizes: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for file in state.files.values():
        vector = file.deletion_vector
        of_each = (file.size, vector.size_in_bytes if vector is not None else 0)
        for path, size in zip(files_of(file), of_each, strict=False):
            if not is_in_table(path):  # vectors of several files share one
                sizes[_folder(warehouse, path)][path] += size
    for folder, of_files in sorted(sizes.items()):
        total = sum(of_files.values())
        yield OutsideFiles(table=table, folder=folder, files=len(of_files), size_bytes=total)


def _folder(warehouse: str, path: str) -> str:
    """The one of a decoded path."""
    plain = path.removeprefix("file://") if path.startswith("file:///") else path
    plain = plain.removeprefix("file:")
    beneath = plain.removeprefix(f"{unquote(warehouse) if '://' in warehouse else warehouse}/")
    if beneath == plain:
        return plain.rpartition("/")[0]
    return "/".join(beneath.split("/")[:IN_WAREHOUSE])
