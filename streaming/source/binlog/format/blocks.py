"""A slice of the binlog as blocks of the contract.

    Slice ──row_blocks(slice, part, wanted)──► blocks: ROW per table and shape of its rows, BAD

Pure, on NumPy and Arrow: it runs in the driver and on an executor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streaming.protocols.contract import Block, Wanted
from streaming.source.binlog.format.charsets import Charsets


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slice:
    """Events of whole transactions, or a piece of one large transaction.

    ``at``: where each event begins in ``data`` (at its header), rising. The protocol's framing may
    stand between the events, as it came from the socket. ``position``: the event's position in the
    part. The events of a compressed transaction (MySQL's TRANSACTION_PAYLOAD) have the payload's.
    ``maps``: the TABLE_MAP events that hold where the slice begins, whole, with their checksums;
    there are none where a statement begins.
    """

    data: bytes
    at: npt.NDArray[np.int64]
    position: npt.NDArray[np.int64]  # file number << 40 | offset in the file
    commit_ts: npt.NDArray[np.int64]  # of the event's transaction, as the driver has given it
    maps: tuple[bytes, ...] = ()
    checksum: bool  # each event ends in a CRC32
    is_mariadb: bool
    charsets: Charsets


def row_blocks(
    slice_: Slice, part: str, wanted: Wanted, *, checks_crc: bool = True
) -> Iterator[Block]:
    """Row blocks and BAD blocks, per piece of the slice by their first position. A compressed
    transaction that is large when inflated comes in several pieces.

    - ROW of a wanted table, one per shape of its rows; rows at or below its ``above_ts`` are in
      none. A row with a value that cannot be read has ``error_class`` and ``error_message``, and
      NULL in that column.
    - ROW without a body of another table: ``rows`` counts its row *events*.
    - BAD: events that mean nothing, with their bytes. The name is told where the event's checksum
      is right and its TABLE_MAP is known.

    ``index`` of a row is its number in its event. In a compressed transaction it rises over all
    events of the payload, but with gaps.

    Cells are typed (``cells/``). A column of dates comes as text where one of them is no date of
    the calendar (``0000-00-00``); a TIMESTAMP's text is in UTC.

    Raises Refused for a wanted table which the server's settings, or the type of a column, leave
    unreadable.
    """
    raise NotImplementedError
