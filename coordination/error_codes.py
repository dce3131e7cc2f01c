"""TiCDC's codes for what goes wrong in a changefeed, by what becomes of it.

An exception says its code by an attribute ``code``. One without a code, and a code that is not
here, is tried again: until ``changefeed-error-stuck-duration`` has passed without progress.
"""

from __future__ import annotations

from typing import Final

UNRETRYABLE: Final = "CDC:ErrChangefeedUnretryable"  # tried for too long; a table that is sealed
# Its history is gone: it fails at once, paused too.
GC_ERRORS: Final = frozenset(
    {"CDC:ErrGCTTLExceeded", "CDC:ErrSnapshotLostByGC", "CDC:ErrStartTsBeforeGC"}
)
# It fails at once.
UNRETRYABLE_ERRORS: Final = frozenset(
    {
        UNRETRYABLE,
        "CDC:ErrColumnSelectorFailed",
        "CDC:ErrCorruptedDataMutation",
        "CDC:ErrDispatcherFailed",
        "CDC:ErrExpressionColumnNotFound",
        "CDC:ErrExpressionParseFailed",
        "CDC:ErrKafkaInvalidConfig",
        "CDC:ErrMySQLInvalidConfig",
        "CDC:ErrSchemaSnapshotNotFound",
        "CDC:ErrSinkURIInvalid",
        "CDC:ErrStorageSinkInvalidConfig",
        "CDC:ErrSyncRenameTableFailed",
        # TiCDC tries these again; here nothing but an operator changes their outcome.
        "CDC:ErrExecDDLFailed",
        "CDC:ErrInvalidReplicaConfig",
    }
)
