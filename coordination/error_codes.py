"""TiCDC's codes for what goes wrong in a changefeed, and what becomes of it: data.

An exception says its code by an attribute ``code``. One without a code, and a code that is not
here, is tried again: until ``changefeed-error-stuck-duration`` has passed without progress.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Fate(StrEnum):
    """What an error makes of a changefeed."""

    AGAIN = "tried again"
    FAILED = "fails at once"
    LOST = "fails at once, paused too"  # its history is gone: TiCDC's GC errors


UNRETRYABLE: Final = "CDC:ErrChangefeedUnretryable"  # tried for too long; a table that is sealed
FATES: Final[Mapping[str, Fate]] = {
    "CDC:ErrGCTTLExceeded": Fate.LOST,
    "CDC:ErrSnapshotLostByGC": Fate.LOST,
    "CDC:ErrStartTsBeforeGC": Fate.LOST,
    UNRETRYABLE: Fate.FAILED,
    "CDC:ErrColumnSelectorFailed": Fate.FAILED,
    "CDC:ErrCorruptedDataMutation": Fate.FAILED,
    "CDC:ErrDispatcherFailed": Fate.FAILED,
    "CDC:ErrExpressionColumnNotFound": Fate.FAILED,
    "CDC:ErrExpressionParseFailed": Fate.FAILED,
    "CDC:ErrKafkaInvalidConfig": Fate.FAILED,
    "CDC:ErrMySQLInvalidConfig": Fate.FAILED,
    "CDC:ErrSchemaSnapshotNotFound": Fate.FAILED,
    "CDC:ErrSinkURIInvalid": Fate.FAILED,
    "CDC:ErrStorageSinkInvalidConfig": Fate.FAILED,
    "CDC:ErrSyncRenameTableFailed": Fate.FAILED,
    # TiCDC tries these again; here nothing but an operator changes their outcome.
    "CDC:ErrExecDDLFailed": Fate.FAILED,
    "CDC:ErrInvalidReplicaConfig": Fate.FAILED,
}
GC_ERRORS: Final = frozenset(code for code, fate in FATES.items() if fate is Fate.LOST)
UNRETRYABLE_ERRORS: Final = frozenset(code for code, fate in FATES.items() if fate is Fate.FAILED)


def fate(code: str) -> Fate:
    return FATES.get(code, Fate.AGAIN)
