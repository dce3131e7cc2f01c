"""Large rows that TiCDC has put into files (``large-message-handle-option=claim-check``).

    a message that names a file ──► its body is read, on the executor ──► the message with the row
                                    it is not there: the row is a dead letter that says where

Imports neither Spark nor gRPC, and a library of object stores where rows are in one.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow.compute as pc

from conf.sources.large_messages import LargeMessages
from coordination.secrets import revealed_options
from sinks.storage.open_storage import open_storage, store_variables
from sinks.storage.table_storage import TableStorage
from streaming.protocols.compressed import MAX_BYTES, PIECE_BYTES
from streaming.protocols.contract import (
    ERROR_MESSAGE,
    Block,
    Decoder,
    Kind,
    Messages,
    Wanted,
    ipc,
)
from streaming.protocols.decoders import ProtocolDecoder
from streaming.protocols.rows.parsed_message import LOOKED

logger = logging.getLogger(__name__)

SIDE_BY_SIDE: Final = 4  # files that a task reads at the same time
MAX_BODY_BYTES: Final = MAX_BYTES // 3 * 4 + (1 << 20)  # in base64
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")  # TiCDC's are <uuid>.json
_NO_BUCKET: Final = re.compile("specified (bucket|container|filesystem) does not exist")


@dataclass(frozen=True, slots=True)
class ClaimedRows:
    """A decoder that reads the files first, those of wanted tables alone. A storage that does not
    answer raises OSError: the read is tried again. A file that is not there, or that is no body,
    does not.

    ``storage``: the folder's URI; ``environment``: the driver's variables for it, where an executor
    has none; ``is_raw``: a file has the value alone.
    """

    decode: ProtocolDecoder
    storage: str
    is_raw: bool
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def reads_keys(self) -> bool:
        return self.decode.reads_keys

    def __call__(self, messages: Messages, wanted: Wanted) -> Iterator[Block]:
        for texts in self.decode.texts(messages):
            for piece in self._whole(texts, wanted):
                yield from map(self._told, self.decode(piece, wanted))

    def _whole(self, messages: Messages, wanted: Wanted) -> Iterator[Messages]:
        """The messages with their rows, in pieces that do not hold many large ones."""
        claims, values = self.decode.claims, messages.values
        marked = pc.fill_null(pc.match_substring(values, claims.marker.decode()), False)
        places = np.flatnonzero(marked.to_numpy(zero_copy_only=False)).tolist()
        named = dict[int, list[str]]()
        for place in places:
            told = claims.find(values[place].as_py())
            if found := [at for at, table in told.items() if table in wanted]:
                named[place] = found
        if not named:
            yield messages
            return
        every: list[bytes | None] = values.to_pylist()
        first, size = 0, 0
        with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
            for some in _by(SIDE_BY_SIDE, [*named]):
                wanted_here = [at for place in some for at in named[place]]
                bodies = dict(zip(wanted_here, threads.map(self._body, wanted_here), strict=True))
                for place in some:
                    there = {at: b for at in named[place] if (b := bodies[at]) is not None}
                    if there:
                        every[place] = claims.fill(every[place] or b"", there)
                        size += sum(map(len, there.values()))
                if size >= PIECE_BYTES:
                    yield messages.part_with(first, every[first : some[-1] + 1])
                    every[first : some[-1] + 1] = [None] * (some[-1] + 1 - first)
                    first, size = some[-1] + 1, 0
        if first < len(every):
            yield messages.part_with(first, every[first:])

    def _body(self, place: str) -> bytes | None:
        """The file is found by its name alone: TiCDC may know the storage by another path."""
        name = place.rpartition("/")[2]
        found = self._read(name) if _NAME.fullmatch(name) is not None else None
        if found is None or self.is_raw:
            return found
        try:
            return base64.b64decode(json.loads(found)["value"], validate=True)
        except (ValueError, TypeError, KeyError, binascii.Error):
            return None

    def _read(self, name: str) -> bytes | None:
        storage = self._opened()
        try:
            is_small = (storage.size(name) or 0) <= MAX_BODY_BYTES
            return storage.read(name) if is_small else None
        except IsADirectoryError:
            return None
        except FileNotFoundError as error:
            self._check_is_there(error)
            return None

    def _check_is_there(self, error: FileNotFoundError) -> None:
        """A folder that is gone may be a file system that is not mounted now."""
        is_file = self.storage.startswith("file:")
        if _NO_BUCKET.search(str(error)) or (is_file and not Path(self._opened().uri).is_dir()):
            raise OSError(f"{self.storage} is not there") from error

    def _opened(self) -> TableStorage:
        for name, value in self.environment.items():
            os.environ.setdefault(name, value)
        return _opened(self.storage, tuple(sorted(self.options.items())))

    def _told(self, block: Block) -> Block:
        """With the place in the errors of rows whose file is not there."""
        if block.kind is not Kind.ROW or block.body is None:
            return block
        table = block.table()
        at = table.schema.get_field_index(ERROR_MESSAGE)
        if at < 0:
            return block
        said = pc.replace_substring(table[ERROR_MESSAGE], LOOKED, f"in {self.storage}")
        return replace(block, body=ipc(table.set_column(at, table.schema.field(at), said)))


@lru_cache(maxsize=4)
def _opened(uri: str, options: tuple[tuple[str, str], ...]) -> TableStorage:
    """One for all tasks of a worker: it keeps its connections."""
    return open_storage(uri, dict(options))


def _by(count: int, places: list[int]) -> Iterator[list[int]]:
    for first in range(0, len(places), count):
        yield places[first : first + count]


def tell_of_cut_rows(large: LargeMessages) -> None:
    """At the start: what cannot be exact."""
    if large.loss is not None:
        logger.warning("%s", large.loss)


def with_claimed_rows(
    decode: ProtocolDecoder, large: LargeMessages, storage_options: tuple[tuple[str, str], ...]
) -> Decoder:
    """The decoder for a source that may have claimed rows. ``storage_options``: of the changefeed,
    as far as the storage's URI does not say otherwise. Raises ConfigError."""
    if large.storage is None:
        return decode
    options = revealed_options({**dict(storage_options), **dict(large.options)})
    is_file = large.storage.startswith("file:")
    return ClaimedRows(
        decode,
        large.storage,
        large.is_raw,
        {} if is_file else options,
        {} if is_file else store_variables(),
    )
