"""What deltalake raises when storage fails, and the one line that an operator reads instead."""

from __future__ import annotations

import re

import pyarrow as pa
from deltalake.exceptions import DeltaError

from coordination.errors import TidelakeError

ERROR_LENGTH = 300
STORAGE_ERRORS = (DeltaError, OSError, pa.ArrowException)
_NOISE = re.compile(r"(\x1b\[[0-9;]*m|↳|\s)+")


def storage_error(doing: str, uri: str, error: BaseException) -> TidelakeError:
    """One line for the operator: what could not be done, where, and what storage said."""
    return TidelakeError(
        f"cannot {doing} {uri}: {one_line(error)} "
        "(is the storage reachable and writable, and is there space left?)"
    )


def one_line(error: BaseException) -> str:
    """The message of an error without colours and line breaks, and not too long."""
    return _NOISE.sub(" ", str(error)).strip()[:ERROR_LENGTH] or type(error).__name__
