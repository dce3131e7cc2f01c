"""An exception as captures report it in etcd: TiCDC's ``RunningError``."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Final

from conf.masking import masked
from coordination.errors import TidelakeError
from coordination.metadata.model import RunningError, rfc3339

PROCESSOR_UNKNOWN: Final = "CDC:ErrProcessorUnknown"  # TiCDC's codes for what has none of its own
OWNER_UNKNOWN: Final = "CDC:ErrOwnerUnknown"


def running_error(error: Exception, *, code: str, address: str, at: datetime) -> RunningError:
    """`code` is that of an error without one of its own (an attribute ``code``)."""
    own_code = getattr(error, "code", None)
    text = str(error) if isinstance(error, TidelakeError) else f"{type(error).__name__}: {error}"
    return RunningError(
        time=rfc3339(at),
        addr=address,
        code=own_code if isinstance(own_code, str) else code,
        message=masked(text),
    )


def log_failure(logger: logging.Logger, what: str, error: Exception) -> None:
    """What a capture met and reports: the owner, which decides what comes of it, says so as an
    error. One line for what is known, which says it all; a traceback for what nobody foresaw."""
    if isinstance(error, TidelakeError):
        logger.info("%s: %s", what, error)
    else:
        logger.error("%s", what, exc_info=error)
