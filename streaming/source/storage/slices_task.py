"""The task that reads and decodes slices of files. Imports neither Spark nor gRPC."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from sinks.storage.open_storage import StorageOpener
from sinks.storage.table_storage import ReadStorage
from streaming.protocols.clocks import latest_ts
from streaming.protocols.contract import Block, Kind, Messages, Wanted
from streaming.protocols.csv.table_head import TableHead
from streaming.protocols.rows.blocks import Collector, with_clocks
from streaming.source.body_files import BodyFile
from streaming.source.storage.layout import SCHEMAS, SchemaFile, schema_position
from streaming.source.storage.part_log import Slice
from streaming.source.storage.schema_files import NotWhole, SchemaText, in_order, read_schema_text
from streaming.source.task_results import ReadFailure, Result


class Damaged(ValueError):
    """A file that will not become good by waiting. The message says which."""


@dataclass(frozen=True, slots=True)
class RowWork:
    """``base``: the position of the file's first byte; ``head``: the columns, where rows do not
    tell them."""

    part: str
    slice: Slice
    base: int
    head: TableHead | None


@dataclass(frozen=True, slots=True)
class SchemaWork:
    """Schema files between two positions of `SCHEMAS`, with their paths."""

    begin: int
    end: int
    files: Sequence[tuple[SchemaFile, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceText:
    """``text`` begins with a row, at ``position``. ``is_first``: its file begins with it.
    ``is_whole``: it ends where a row ends, so that what is left behind the last end of a row is a
    row that was cut off."""

    part: str
    text: bytes
    position: int
    head: TableHead | None
    is_first: bool
    is_whole: bool


class RowDecoder(Protocol):
    """Sent to executors."""

    def __call__(self, of: SliceText, wanted: Wanted, *, most_rows: int) -> Iterator[Block]:
        """The blocks, and a DONE block that says how far the text was read."""


@dataclass(frozen=True, slots=True)
class SlicesTask:
    """A `Task`. ``most_rows``: of a slice."""

    opener: StorageOpener
    folder: str
    lists: Sequence[Sequence[RowWork | SchemaWork]]
    decode: RowDecoder
    wanted: Wanted
    most_rows: int
    start_ts: int
    bodies: str | None = field(default=None)

    def __call__(self, number: int) -> Iterator[Result]:
        bodies = BodyFile(self.bodies)
        try:
            storage = self.opener(self.folder)
            for work in self.lists[number]:
                for block in self.blocks(storage, work):
                    yield bodies.put(block)
        except Exception as error:  # noqa: BLE001  # raised again in the driver
            is_lasting = isinstance(error, Damaged | FileNotFoundError)
            reason = str(error) if is_lasting else f"{type(error).__name__}: {error}"
            yield ReadFailure(is_unreadable=is_lasting, reason=reason)
        finally:
            bodies.close()

    def blocks(self, storage: ReadStorage, work: RowWork | SchemaWork) -> Iterator[Block]:
        """At least one row, if one ends in the file: only the decoder knows where rows end."""
        if isinstance(work, SchemaWork):
            yield from ddl_blocks(storage, work, self.start_ts)
            return
        of, begin = work.slice, work.slice.begin
        while True:
            text = slice_text(storage, of)
            is_to_end = begin + len(text) >= of.size
            told = SliceText(
                part=work.part,
                text=text,
                position=work.base + begin,
                head=work.head,
                is_first=begin == 0,
                is_whole=not of.is_last and is_to_end,
            )
            for block in self.decode(told, self.wanted, most_rows=self.most_rows):
                if block.kind is Kind.DONE and block.last == block.first and not is_to_end:
                    break
                yield block
            else:
                return
            of = replace(of, end=min(of.size, begin + 4 * (of.end - begin)))


def slice_text(storage: ReadStorage, of: Slice) -> bytes:
    """Raises OSError where the file is shorter now: it is being written again."""
    text = storage.read_range(of.path, of.begin, of.end)
    if len(text) < of.end - of.begin:
        raise OSError(f"{of.path} had {of.end} bytes and has {of.begin + len(text)} now")
    return text


def ddl_blocks(storage: ReadStorage, work: SchemaWork, start_ts: int) -> Iterator[Block]:
    """The DDLs of schema files. Raises NotWhole for a file that is being written."""
    texts = [storage.read(path) for _, path in work.files]
    found = []
    for (file, path), text in zip(work.files, texts, strict=True):
        found.append((checked(file, path, text), text))
    ordered = in_order(found)
    told = [(schema, text) for schema, text in ordered if schema.ddl is not None]
    messages = Messages(
        part=SCHEMAS,
        positions=pa.array(_positions([schema.version for schema, _ in told]), pa.int64()),
        values=pa.array([text for _, text in told], pa.binary()),
        latest_ts=latest_ts(time.time() * 1e3),
    )
    if told:
        collector = Collector(with_clocks(messages, start_ts), {})
        collector.keep_each(np.arange(len(told)), [each.ddl for each, _ in told if each.ddl])
        yield from collector.blocks()
    yield Block(
        kind=Kind.DONE,
        part=SCHEMAS,
        rows=len(work.files),
        first=work.begin,
        last=work.end,
        message_bytes=sum(map(len, texts)),
    )


def _positions(versions: Sequence[int]) -> list[int]:
    ranks = [at - versions.index(version) for at, version in enumerate(versions)]
    return list(map(schema_position, versions, ranks))


def checked(file: SchemaFile, path: str, text: bytes) -> SchemaText:
    """Raises NotWhole, and Damaged where the checksum in the file's name is another one."""
    try:
        found = read_schema_text(text)
    except NotWhole as error:
        raise NotWhole(f"{path}: {error}") from error
    says = found.checksum, found.version, file.name and found.name
    if says != (file.checksum, file.version, file.name):
        raise Damaged(
            f"{path} does not say what its name does: the checksum of its columns is "
            f"{found.checksum:010}. Bring back the file that TiCDC wrote"
        )
    return found
