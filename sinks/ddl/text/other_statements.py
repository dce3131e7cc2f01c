"""Statements that are about no table: users and rights, programs in the server, sessions, the
server itself. Pure.

The first words decide, so that a body with several statements, or a string that cannot be read,
does not matter. What is not named here is not passed over: an operator decides."""

from __future__ import annotations

import re
from typing import Final

from sinks.ddl.text.plain_text import first_words, plain_text

RIGHTS: Final = "users and their rights are not replicated"
PROGRAMS: Final = "events, procedures, functions and triggers are not replicated"
VIEWS: Final = "views are not replicated"
STATISTICS: Final = "statistics are not replicated"
_SERVER: Final = "it is about the server, and changes no table"
_SESSION: Final = "it is about a session or a transaction, and changes no table"
_UPKEEP: Final = "the upkeep of tables is not replicated"
_READS: Final = "it changes nothing"
NO_STATEMENT: Final = "it is a comment"
_MOST_WORDS: Final = 16

_MAKES: Final = ("CREATE", "ALTER", "DROP", "RENAME")
_VERBS: Final = {
    **dict.fromkeys(("GRANT", "REVOKE"), RIGHTS),
    **dict.fromkeys(("FLUSH", "RESET", "PURGE", "KILL", "SHUTDOWN", "RESTART"), _SERVER),
    **dict.fromkeys(("CHANGE", "START", "STOP", "INSTALL", "UNINSTALL", "BACKUP"), _SERVER),
    **dict.fromkeys(("BINLOG", "CLONE", "CACHE", "HELP", "ADMIN", "SPLIT"), _SERVER),
    **dict.fromkeys(("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "XA"), _SESSION),
    **dict.fromkeys(("SET", "USE", "LOCK", "UNLOCK", "PREPARE", "EXECUTE", "DEALLOCATE"), _SESSION),
    **dict.fromkeys(("HANDLER", "SIGNAL", "RESIGNAL", "GET"), _SESSION),
    "ANALYZE": STATISTICS,
    **dict.fromkeys(("OPTIMIZE", "REPAIR", "CHECK", "CHECKSUM"), _UPKEEP),
    **dict.fromkeys(("SHOW", "SELECT", "EXPLAIN", "DESCRIBE", "DESC", "DO", "TABLE"), _READS),
}
_OBJECTS: Final = {
    **dict.fromkeys(("USER", "ROLE"), RIGHTS),
    **dict.fromkeys(("EVENT", "PROCEDURE", "FUNCTION", "TRIGGER", "PACKAGE", "LIBRARY"), PROGRAMS),
    **dict.fromkeys(("SERVER", "TABLESPACE", "LOGFILE", "UNDO", "INSTANCE", "RESOURCE"), _SERVER),
    **dict.fromkeys(("PLACEMENT", "BINDING", "RANGE"), _SERVER),
    "PREPARE": _SESSION,
    "VIEW": VIEWS,
}
_TABLES: Final = frozenset(("TABLE", "TABLES", "INDEX", "DATABASE", "SCHEMA", "SEQUENCE"))
_BEFORE_OBJECTS: Final = frozenset(("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "TEMPORARY"))
_NAME: Final = r"""(?:`(?:[^`]|``)*`|'(?:[^']|'')*'|"(?:[^"]|"")*"|[\w$.%-]+)"""
_DEFINER: Final = re.compile(rf"\bDEFINER\s*=\s*{_NAME}(?:\s*@\s*{_NAME})?", re.IGNORECASE)
_FOR_ONE_STATEMENT: Final = re.compile(r"\s*SET\s+STATEMENT\s", re.IGNORECASE)
_NAME_OR_TEXT: Final = re.compile(r"'(?:[^']|'')*'|`(?:[^`]|``)*`|\bFOR\b", re.IGNORECASE)


def why_of_no_table(query: str) -> str:
    """Why a statement changes no table; "": it may change one, or is not known."""
    words = first_words(_DEFINER.sub("", query, count=1), _MOST_WORDS)
    if not words:
        return NO_STATEMENT if _is_comment(query) else ""
    verb, behind = words[0], words[1:]
    if verb == "SET" and behind[:1] == ["STATEMENT"]:
        return ""  # for one statement, which stands behind it
    if verb == "SET" and "PASSWORD" in behind[:1]:
        return RIGHTS
    if verb in ("LOCK", "UNLOCK") and "STATS" in behind[:1]:
        return STATISTICS
    if verb in _MAKES:
        return _of_object(behind)
    return _VERBS.get(verb, "")


def _of_object(words: list[str]) -> str:
    """By the first word that names a kind of object."""
    if "SPATIAL" in words and "REFERENCE" in words[:5]:
        return _SERVER
    for word in words:
        if word in _TABLES or word in _BEFORE_OBJECTS:
            return ""
        if word in _OBJECTS:
            return _OBJECTS[word]
    return ""


def for_one_statement(query: str) -> str:
    """A statement of MariaDB without SET STATEMENT name = value, … FOR before it."""
    plain = plain_text(query)
    if not _FOR_ONE_STATEMENT.match(plain):
        return query
    behind = (each.end() for each in _NAME_OR_TEXT.finditer(plain) if each[0].upper() == "FOR")
    return plain[next(behind, 0) :]


def _is_comment(query: str) -> bool:
    return query.lstrip().startswith(("/*", "--", "#"))
