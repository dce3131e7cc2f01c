"""The type of a DDL, by the names that canal-json has for them: from TiDB's numbers, or from a
statement where nothing else tells it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_DDL_TYPES: Final[Mapping[int, str]] = {
    3: "CREATE",
    4: "ERASE",
    11: "TRUNCATE",
    **dict.fromkeys((14, 47), "RENAME"),
    **dict.fromkeys((7, 9, 32), "CINDEX"),
    **dict.fromkeys((8, 10, 33), "DINDEX"),
    **dict.fromkeys((5, 6, 12, 13, 15, 17, 18, 19, 20, 22, 23, 37, 38, 41, 61), "ALTER"),
}
# A comment in front tells the application, say. What is in ``/*! … */`` is run.
# Each character has one way to match, so it takes no long without possessive repeats, of which
# Python before 3.11.5 loses some.
_BEFORE: Final = r"(?:\s|/\*(?!!)(?:[^*]|\*(?!/))*\*/|(?:--\s|#)[^\n]*\n)*"
_STATEMENTS: Final = tuple(
    (re.compile(_BEFORE + words, re.IGNORECASE), kind)
    for words, kind in (
        (r"CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\b", "CREATE"),
        (r"DROP\s+TABLE\b", "ERASE"),
        (r"ALTER\s+TABLE\b", "ALTER"),
        (r"TRUNCATE\b", "TRUNCATE"),
        (r"RENAME\b", "RENAME"),
    )
)


def ddl_type(number: int) -> str:
    return _DDL_TYPES.get(number, "QUERY")


def statement_type(query: str) -> str:
    """By its first words."""
    return next((kind for pattern, kind in _STATEMENTS if pattern.match(query)), "QUERY")
