"""The codes of events, and of columns in a TABLE_MAP, as the servers write them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, IntFlag
from typing import Final

import numpy as np
import numpy.typing as npt


class EventType(IntEnum):
    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    TABLE_MAP = 19
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42
    # MariaDB's own
    ANNOTATE_ROWS = 160
    BINLOG_CHECKPOINT = 161
    MARIADB_GTID = 162
    GTID_LIST = 163
    START_ENCRYPTION = 164
    QUERY_COMPRESSED = 165
    WRITE_ROWS_COMPRESSED_V1 = 166
    UPDATE_ROWS_COMPRESSED_V1 = 167
    DELETE_ROWS_COMPRESSED_V1 = 168
    WRITE_ROWS_COMPRESSED = 169
    UPDATE_ROWS_COMPRESSED = 170
    DELETE_ROWS_COMPRESSED = 171


def among(codes: Iterable[int]) -> npt.NDArray[np.bool_]:
    """A table: whether a code, of one byte, is one of these."""
    table = np.zeros(256, np.bool_)
    table[[*codes]] = True
    return table


WRITES: Final = (EventType.WRITE_ROWS_V1, EventType.WRITE_ROWS)
UPDATES: Final = (EventType.UPDATE_ROWS_V1, EventType.UPDATE_ROWS)
DELETES: Final = (EventType.DELETE_ROWS_V1, EventType.DELETE_ROWS)
ROW_EVENTS: Final = (*WRITES, *UPDATES, *DELETES, EventType.PARTIAL_UPDATE_ROWS)
GTIDS: Final = (
    EventType.GTID,
    EventType.ANONYMOUS_GTID,
    EventType.GTID_TAGGED,
    EventType.MARIADB_GTID,
)
INFLATED: Final = {  # an event of MariaDB's whose rows are compressed -> what it is inflated
    EventType.WRITE_ROWS_COMPRESSED_V1: EventType.WRITE_ROWS_V1,
    EventType.UPDATE_ROWS_COMPRESSED_V1: EventType.UPDATE_ROWS_V1,
    EventType.DELETE_ROWS_COMPRESSED_V1: EventType.DELETE_ROWS_V1,
    EventType.WRITE_ROWS_COMPRESSED: EventType.WRITE_ROWS,
    EventType.UPDATE_ROWS_COMPRESSED: EventType.UPDATE_ROWS,
    EventType.DELETE_ROWS_COMPRESSED: EventType.DELETE_ROWS,
}


IS_UPDATE: Final = among(UPDATES)
IS_DELETE: Final = among(DELETES)
IS_ROW_EVENT: Final = among(ROW_EVENTS)
IS_PARTIAL: Final = among((EventType.PARTIAL_UPDATE_ROWS,))
IS_GTID: Final = among(GTIDS)
IS_PACKED: Final = among((EventType.TRANSACTION_PAYLOAD, *INFLATED))


class RowsFlag(IntFlag):
    STATEMENT_END = 1  # the TABLE_MAPs before it hold no longer


class ColumnType(IntEnum):
    """ENUM and SET are written as STRING; their code stands in its metadata."""

    DECIMAL_OLD = 0
    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    NULL = 6
    TIMESTAMP_OLD = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME_OLD = 11
    DATETIME_OLD = 12
    YEAR = 13
    VARCHAR = 15
    BIT = 16
    TIMESTAMP = 17
    DATETIME = 18
    TIME = 19
    TYPED_ARRAY = 20
    BLOB_COMPRESSED = 140  # MariaDB
    VARCHAR_COMPRESSED = 141  # MariaDB
    VECTOR = 242
    JSON = 245
    DECIMAL = 246
    ENUM = 247
    SET = 248
    TINY_BLOB = 249
    MEDIUM_BLOB = 250
    LONG_BLOB = 251
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255
