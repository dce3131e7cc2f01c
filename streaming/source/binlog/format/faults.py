"""What can be wrong with an event: its bytes are garbage, or the server writes it as nobody can
read it."""

from __future__ import annotations

from typing import Final

from coordination.errors import TidelakeError

CHECKSUM: Final = "checksum"  # error classes of a BAD block's events
BAD_EVENT: Final = "bad-event"
NO_TABLE_MAP: Final = "no-table-map"
BAD_CELL: Final = "bad-cell"  # error class of a row: one of its values cannot be read
NOT_WHOLE: Final = "no-whole-row"  # of a row: its images lack what is needed of it
UNREADABLE: Final = "unreadable"  # no row of the event's table can be read, as the server has it


class BadEvent(Exception):
    """The bytes of an event mean nothing. The message is a sentence. ``error_class``: one of the
    above."""

    def __init__(self, message: str, error_class: str = BAD_EVENT) -> None:
        super().__init__(message)
        self.error_class = error_class


class Refused(TidelakeError):
    """The server writes its binlog in a way from which a table cannot be replicated. The message
    says what has to be set or altered there. No other try helps."""
