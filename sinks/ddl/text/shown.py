"""A statement as people may see it, in a log line or a table of control: without secrets. Pure."""

from __future__ import annotations

import re
from typing import Final

from sinks.ddl.text.logged import as_written
from sinks.ddl.text.plain_text import first_words

_HIDDEN: Final = "'***'"
_STRING: Final = r"""(?:'(?:[^'\\]|\\.|'')*(?:'|\Z)|"(?:[^"\\]|\\.|"")*(?:"|\Z))"""
_STRINGS: Final = re.compile(rf"{_STRING}|\b0x[0-9a-f]+\b", re.IGNORECASE | re.DOTALL)
# A statement about a table may have the password of another server, of which it is a view.
_SECRET: Final = re.compile(
    rf"(\b(?:IDENTIFIED\s+(?:BY|AS|WITH|VIA)\b(?:\s+(?:PASSWORD|\w+\s+(?:AS|BY|USING)))?|PASSWORD|"
    rf"CONNECTION|SECRET|AUTHENTICATION)\b\s*[=(]?\s*){_STRING}",
    re.IGNORECASE | re.DOTALL,
)
_INNER: Final = re.compile(r"""(\bpassword\s*[=\s]\s*)(["'])[^"']*(?:["']|\Z)""", re.IGNORECASE)
_IN_URL: Final = re.compile(r"(://[^/\s:@'\"]*:)[^@\s'\"]*@")
_OF_TABLES: Final = frozenset(("TABLE", "TABLES", "INDEX", "DATABASE", "SCHEMA", "TRUNCATE"))
_MOST_WORDS: Final = 8


def shown(query: str) -> str:
    """All strings of a statement that is about no table are hidden: any may be a password."""
    if _OF_TABLES.isdisjoint(first_words(as_written(query), _MOST_WORDS)):
        return _STRINGS.sub(_HIDDEN, query)
    query = _SECRET.sub(rf"\1{_HIDDEN}", query)
    query = _INNER.sub(r"\1\2***\2", query)
    return _IN_URL.sub(r"\1***@", query)
