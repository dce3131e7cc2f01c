"""When changes were made, by a number in their messages' text."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def numbers_in(values: pa.Array, pattern: str) -> pa.Int64Array:
    """The group ``ms`` of the first match in each message, at most 18 digits; null without one."""
    found = pc.extract_regex(values, pattern)
    (digits,) = found.flatten()  # a field alone does not know which messages have no match
    return digits.cast(pa.string()).cast(pa.int64())
