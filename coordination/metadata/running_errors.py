"""An exception as captures report it in etcd: TiCDC's ``RunningError``."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Final

from conf.masking import masked
from coordination.errors import TidelakeError
from coordination.metadata.records import RunningError, rfc3339

# TiCDC's codes for errors without a code of their own.
PROCESSOR_UNKNOWN: Final = "CDC:ErrProcessorUnknown"
OWNER_UNKNOWN: Final = "CDC:ErrOwnerUnknown"


def running_error(error: Exception, *, code: str, address: str, at: datetime) -> RunningError:
    """The report of an error. `code` is used if the error has no code of its own (an attribute
    ``code``). Secrets are masked."""
    own_code = getattr(error, "code", None)
    text = str(error) if isinstance(error, TidelakeError) else f"{type(error).__name__}: {error}"
    return RunningError(
        time=rfc3339(at),
        addr=address,
        code=own_code if isinstance(own_code, str) else code,
        message=masked(text),
    )


def log_failure(logger: logging.Logger, what: str, error: Exception) -> None:
    """Log an error that a capture reports to the owner. A ``TidelakeError`` is one INFO line: the
    owner decides what to do about it, and logs it as an ERROR. Any other exception is unexpected,
    and is logged as an ERROR with its traceback."""
    if isinstance(error, TidelakeError):
        logger.info("%s: %s", what, error)
    else:
        logger.error("%s", what, exc_info=error)
