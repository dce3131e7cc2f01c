"""TiCDC's codes of errors after which a changefeed is not tried again.

An exception has its code in an attribute ``code``. After an exception without a code, or with one
that is not here, the changefeed is tried again, until ``changefeed-error-stuck-duration`` has
passed without progress.
"""

from __future__ import annotations

from typing import Final

UNRETRYABLE: Final = "CDC:ErrChangefeedUnretryable"  # tried for too long, or a table is sealed
# The history that the changefeed needs is gone: it fails at once, even if it is paused.
GC_ERRORS: Final = frozenset(
    {"CDC:ErrGCTTLExceeded", "CDC:ErrSnapshotLostByGC", "CDC:ErrStartTsBeforeGC"}
)
# The changefeed fails at once.
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
        # TiCDC tries these again; here they recur until an operator changes something.
        "CDC:ErrExecDDLFailed",
        "CDC:ErrInvalidReplicaConfig",
    }
)
