"""The errors, sorted by what to do about them; and TiCDC's codes of errors after which a changefeed
is not tried again. An operator reads an error's message.

An exception has its code in an attribute ``code``. After an exception without a code, or with a
code that is not listed here, the changefeed is tried again, until
``changefeed-error-stuck-duration`` has passed without progress.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

UNRETRYABLE: Final = "CDC:ErrChangefeedUnretryable"  # tried for too long, or a table is sealed
# The history that the changefeed needs is gone: it fails at once, even if it is paused.
GC_ERRORS: Final = frozenset(
    {"CDC:ErrGCTTLExceeded", "CDC:ErrSnapshotLostByGC", "CDC:ErrStartTsBeforeGC"}
)
# The source is another server now: the changefeed is tried again, also where no error else is.
SOURCE_MOVED: Final = "CDC:ErrSourceMoved"
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


class TidelakeError(Exception):
    """Ends the program with exit code 1; only the message is shown, no traceback."""


class ConfigError(TidelakeError):
    """The command line or the configuration is wrong: exit code 2. ``code`` is TiCDC's error code,
    for a changefeed that fails with it."""

    code = "CDC:ErrInvalidReplicaConfig"


class SourceUriInvalid(ConfigError):
    """The ``source-uri`` is wrong."""

    code = "CDC:ErrKafkaInvalidConfig"


class SinkUriInvalid(ConfigError):
    """The ``sink-uri`` is wrong."""

    code = "CDC:ErrSinkURIInvalid"


class TopicMissing(ConfigError):
    """A topic of the source does not exist, or is not as the configuration says. It may be created
    later, so the changefeed is tried again."""

    code = "CDC:ErrKafkaTopicNotExists"


class Fenced(TidelakeError):
    """Trust in the session has lapsed: this capture must not write any more."""


class CaptureSuicide(TidelakeError):
    """The session is gone: this capture must stop writing and start again as a new one."""


class TermRefused(TidelakeError):
    """The control tables in Delta refuse this owner's term: another owner has claimed a newer one,
    or the incarnation is over. It ends the work on that changefeed, not the capture."""

    code = "CDC:ErrNotOwner"


class TableSealed(TidelakeError):
    """A table takes no writes of this changefeed any more, since another one has taken it over."""

    code = "CDC:ErrChangefeedUnretryable"


class LeaseGone(CaptureSuicide):
    """The lease that a call to etcd used has expired or was revoked."""


class Stop(TidelakeError):
    """The program was asked to end; this is no failure."""


class TryAgain(TidelakeError):
    """Nothing is wrong for good: do the same again a little later."""


class NotInTime(TidelakeError):
    """An operator's order was not done within the time that they gave. ``rows`` say how far it
    is."""

    def __init__(self, message: str, *rows: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.rows = rows
