"""Large rows that TiCDC has put into files (``large-message-handle-option=claim-check``).

    a message that names a file ──► its body is read, on the executor ──► the message with the row
                                    it is not there: the row is a dead letter that names it

Imports neither Spark nor gRPC.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from conf.sources.large_messages import LargeMessages
from streaming.protocols.contract import Block, Decoder, Messages, Wanted
from streaming.protocols.decoders import ProtocolDecoder

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClaimedRows:
    """A decoder that reads the files first, those of wanted tables alone. A file that cannot be
    read raises OSError: the read is tried again. One that is not there, or that is no body, does
    not."""

    decode: ProtocolDecoder
    folder: str
    is_raw: bool  # a file has the value alone

    @property
    def reads_keys(self) -> bool:
        return self.decode.reads_keys

    def __call__(self, messages: Messages, wanted: Wanted) -> Iterator[Block]:
        for each in self.decode.texts(messages):
            yield from self.decode(self._whole(each, wanted), wanted)

    def _whole(self, messages: Messages, wanted: Wanted) -> Messages:
        claims, values = self.decode.claims, messages.values
        marked = pc.fill_null(pc.match_substring(values, claims.marker.decode()), False)
        made: dict[int, bytes] = {}
        for place in np.flatnonzero(marked.to_numpy(zero_copy_only=False)).tolist():
            message = values[place].as_py()
            named = [at for at, name in claims.find(message).items() if name in wanted]
            bodies = {at: body for at in named if (body := self._body(at)) is not None}
            if bodies:
                made[place] = claims.fill(message, bodies)
        if not made:
            return messages
        every = [made.get(n, each) for n, each in enumerate(values.to_pylist())]
        return messages.part_with(0, every)

    def _body(self, place: str) -> bytes | None:
        """The file is found by its name alone: TiCDC may know the storage by another path."""
        try:
            found = Path(self.folder, place.rpartition("/")[2]).read_bytes()
        except (FileNotFoundError, IsADirectoryError):
            return None
        if self.is_raw:
            return found
        try:
            return base64.b64decode(json.loads(found)["value"], validate=True)
        except (ValueError, TypeError, KeyError, binascii.Error):
            return None


def tell_of_cut_rows(large: LargeMessages) -> None:
    """At the start: what cannot be exact."""
    if large.loss is not None:
        logger.warning("%s", large.loss)


def with_claimed_rows(decode: ProtocolDecoder, large: LargeMessages) -> Decoder:
    """The decoder for a source that may have claimed rows."""
    if large.folder is None:
        return decode
    return ClaimedRows(decode, large.folder, large.is_raw)
