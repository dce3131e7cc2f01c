"""A statement without comments, with names in backquotes and strings in single quotes, by the rules
of its writer (``Dialect``, docs/ddl.md); and its first words. Pure. Executors use it too: nothing
here needs a grammar or a package."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from sinks.ddl.text.logged import Session, session_of


class Dialect(Enum):
    """How a statement writes a string; its writer decides."""

    RESTORED = "by TiDB's parser, for TiCDC"
    """No backslash escapes anything, and a quote is doubled. A value of an expression (a default, a
    partition's bound, a column's comment) has each backslash twice, and what is no expression (the
    name of an ENUM's or SET's element, a comment of a table, an index or a partition) has it once.
    """
    WRITTEN = "by MySQL's rules: by hand, by a server for a dump, or by a session for its binlog"
    """A backslash escapes, in each string alike; strings side by side are one. A session may say
    otherwise (``logged.Session``)."""


TYPED: Final = "/* tidelake ddl apply */ "
"""What an operator types in a DDL's place begins with it wherever it is kept: it is ``WRITTEN``."""


_COMMENT = r"/\*.*?(?:\*/|\Z)|(?:--(?=\s|$)|\#)[^\n]*"
_ESCAPING = r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`|"""
_PLAIN = r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|"""
_NAMES_IN_QUOTES = r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|"""
_SQL_IN_COMMENT = re.compile(r"/\*(?:T!(?:\[[^\]]*\])?|M?!\d*)(.*)\*/", re.DOTALL)
_SQL_OF_MARIADB = re.compile(r"/\*M?!\d*(.*)\*/", re.DOTALL)
_SQL_OF_MYSQL = re.compile(r"/\*!\d*(.*)\*/", re.DOTALL)


_ESCAPE = re.compile(r"\\(.)|''|\"\"", re.DOTALL)
_WORD_OR_QUOTED = re.compile(r"'(?:[^']|'')*'|`(?:[^`]|``)*`|(\w+)")
_CONTROL = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "0": "\0", "Z": "\x1a"}


def first_words(query: str, count: int) -> list[str]:
    """In upper case the first words that are no names in quotes, no strings and no marks, of a
    statement that may be no DDL or several (the body of a procedure)."""
    found = (match[1] for match in _WORD_OR_QUOTED.finditer(plain_text(query)) if match[1])
    return [word.upper() for word in itertools.islice(found, count)]


def plain_text(query: str) -> str:
    """A statement without comments, with names in backquotes and strings in single quotes."""
    return spelling_of(query, None).plain(query)


@dataclass(frozen=True, slots=True)
class _Spelling:
    """How the writer of a statement quotes. ``doubles``: TiDB's parser has doubled backslashes."""

    quoted_or_comment: re.Pattern[str]
    sql_in_comment: re.Pattern[str] = _SQL_IN_COMMENT
    doubles: bool = False
    escapes: bool = True
    ansi_quotes: bool = False

    def plain(self, text: str) -> str:
        """The text without comments, and with strings as the tokenizer takes them: in single
        quotes, without escapes but for the quote."""
        return self.quoted_or_comment.sub(self._plain_match, text)

    def _plain_match(self, match: re.Match[str]) -> str:
        text = match.group()
        first = text[0]
        if first == "`" or (self.doubles and first in "'\""):
            return text
        if first == '"' and self.ansi_quotes:
            return "`" + text[1:-1].replace('""', '"').replace("`", "``") + "`"
        if text.startswith("/*") and not text.endswith("*/", 2):
            return text  # it has no end, and is no comment
        if first in "'\"":
            return "'" + self._unescaped(text).replace("'", "''") + "'"
        inner = self.sql_in_comment.fullmatch(text)
        return f" {self.plain(inner[1])} " if inner else " "

    def _unescaped(self, text: str) -> str:
        quote, inner = text[0], text[1:-1]
        if not self.escapes:
            return inner.replace(2 * quote, quote)

        def plain(escape: re.Match[str]) -> str:
            if escape[1] is None:
                return quote if escape[0][0] == quote else escape[0]
            return escape[0] if escape[1] in "%_" else _CONTROL.get(escape[1], escape[1])

        return _ESCAPE.sub(plain, inner)


def _quoted_or_comment(quoted: str) -> re.Pattern[str]:
    return re.compile(quoted + _COMMENT, re.DOTALL)


_RESTORED = _Spelling(_quoted_or_comment(_PLAIN), doubles=True)
_WRITTEN = _Spelling(_quoted_or_comment(_ESCAPING))


def spelling_of(query: str, dialect: Dialect | None) -> _Spelling:
    if (session := session_of(query)) is not None:
        return _of_session(session)
    if dialect is None:
        dialect = Dialect.WRITTEN if query.startswith(TYPED) else Dialect.RESTORED
    return _WRITTEN if dialect is Dialect.WRITTEN else _RESTORED


def _of_session(session: Session) -> _Spelling:
    """The server takes the ``!`` out of the comments whose SQL it passes over. So what is left is
    SQL, but for MariaDB's own comments on a MySQL."""
    quoted = _NAMES_IN_QUOTES if session.ansi_quotes else _ESCAPING
    return _Spelling(
        _quoted_or_comment(_PLAIN if session.no_backslash_escapes else quoted),
        sql_in_comment=_SQL_OF_MARIADB if session.is_mariadb else _SQL_OF_MYSQL,
        escapes=not session.no_backslash_escapes,
        ansi_quotes=session.ansi_quotes,
    )
