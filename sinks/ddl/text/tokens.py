"""Cuts a DDL statement into words, for the readers of CREATE and ALTER TABLE.

The writer of a statement decides what its quotes hold (``Dialect``, docs/ddl.md). TiCDC sends every
DDL as TiDB's parser writes it back (``addSpecialComment``): names in backquotes, and TiDB's own
syntax in ``/*T![feature] … */`` comments, which are opened here. sqlglot's MySQL tokenizer cuts the
statement. Its parser is not used: it refuses FLOAT UNSIGNED and partition clauses, and makes opaque
commands of many others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from sinks.ddl.text.plain_text import Dialect, spelling_of


@dataclass(frozen=True, slots=True)
class Word:
    """A piece of SQL. ``text`` is without quotes; b'01' and x'4f' (``bits``, ``hex``) have their
    digits in it. A group (parentheses) has its words in ``inner`` instead. ``value``: the meaning
    of a ``text`` as a value of an expression; ``text`` is its meaning anywhere else."""

    kind: Literal["word", "name", "text", "number", "bits", "hex", "mark", "group", "end"]
    text: str
    inner: tuple[Word, ...] = ()
    value: str = ""

    @property
    def upper(self) -> str:
        """The text to compare with keywords; empty for quoted text, which is never a keyword."""
        return self.text.upper() if self.kind in ("word", "mark") else ""


END = Word("end", "")


class Words:
    """A cursor over words. A group in parentheses is one word."""

    def __init__(self, words: Sequence[Word]) -> None:
        self._words = tuple(words)
        self._at = 0

    def peek(self, ahead: int = 0) -> Word:
        at = self._at + ahead
        return self._words[at] if at < len(self._words) else END

    def take(self) -> Word:
        word = self.peek()
        self._at += 1
        return word

    def accept(self, *keywords: str) -> bool:
        """Step over these keywords if all of them come next."""
        found = all(self.peek(n).upper == keyword for n, keyword in enumerate(keywords))
        if found:
            self._at += len(keywords)
        return found

    def accept_any(self, *keywords: str) -> str:
        """Step over the next word if it is one of these; return it, or the empty text."""
        return self.take().upper if self.peek().upper in keywords else ""

    def name(self) -> str:
        word = self.take()
        if word.kind not in ("name", "word"):
            raise ValueError(f"a name is missing where {word.text or 'the end'!r} stands")
        return word.text

    def column_name(self) -> str:
        """A column's name, without the schema and table that may come before it."""
        name = self.name()
        while self.accept("."):
            name = self.name()
        return name

    def table_name(self) -> tuple[str, str]:
        """(schema, table); the schema is empty where the statement does not name it."""
        first = self.name()
        if self.accept("."):
            return first, self.name()
        return "", first

    def end(self) -> None:
        """Raises ValueError where more words follow."""
        if self.peek().kind != "end":
            raise ValueError(f"the words from {self.peek().text or '(…)'} on are unknown here")

    def until(self, keyword: str) -> tuple[tuple[Word, ...], tuple[Word, ...]]:
        """The words before the keyword, and those behind it."""
        rest = self.rest()
        at = next((n for n, word in enumerate(rest) if word.upper == keyword), len(rest))
        return rest[:at], rest[at + 1 :]

    def rest(self) -> tuple[Word, ...]:
        return self._words[self._at :]


def split_by_comma(words: Sequence[Word]) -> list[tuple[Word, ...]]:
    parts: list[list[Word]] = [[]]
    for word in words:
        if word.upper == ",":
            parts.append([])
        else:
            parts[-1].append(word)
    return [tuple(part) for part in parts if part]


def same_name(name: str, other: str) -> bool:
    """Whether MySQL takes these for one column or index: it ignores case."""
    return name.lower() == other.lower()


def schema_of(written: str, message: str) -> str:
    """The database that a statement means: ``written`` where it names another one than the message
    (``message``), and otherwise the message's, which has TiDB's spelling.
    """
    return written if written and not same_name(written, message) else message


def names_binary_charset(words: Sequence[Word]) -> bool | None:
    """Whether CHARACTER SET or COLLATE says binary; None where neither is given."""
    answer = None
    for at, word in enumerate(words):
        if word.upper not in ("CHARSET", "COLLATE") and (
            word.upper not in ("CHARACTER", "CHAR") or _upper_at(words, at + 1) != "SET"
        ):
            continue
        value = at + (1 if word.upper in ("CHARSET", "COLLATE") else 2)
        value += _upper_at(words, value) == "="
        if value < len(words):
            answer = answer or words[value].text.lower() == "binary"
    return answer


def named_charset(words: Sequence[Word]) -> str:
    """The character set that CHARACTER SET or COLLATE names, in lower case; empty where neither
    does."""
    found = ""
    for at, word in enumerate(words):
        is_collation = word.upper == "COLLATE"
        if word.upper not in ("CHARSET", "COLLATE") and (
            word.upper not in ("CHARACTER", "CHAR") or _upper_at(words, at + 1) != "SET"
        ):
            continue
        value = at + (1 if word.upper in ("CHARSET", "COLLATE") else 2)
        value += _upper_at(words, value) == "="
        text = words[value].text.lower() if value < len(words) else ""
        if not is_collation:
            return "utf8mb3" if text == "utf8" else text
        found = text.partition("_")[0]  # utf8mb4_bin
        found = "utf8mb3" if found == "utf8" else found
    return "" if found == "uca1400" else found  # MariaDB's, of whatever character set


def _upper_at(words: Sequence[Word], at: int) -> str:
    return words[at].upper if at < len(words) else ""


class _Tokenizer(MySQL.Tokenizer):
    STRING_ESCAPES: ClassVar = ["'", '"']  # no backslash
    COMMANDS: ClassVar = set()  # RENAME TABLE a TO b is not one opaque string


def read_words(query: str, dialect: Dialect | None = None) -> tuple[Word, ...]:
    """Cut one statement into words. Comments are dropped, or opened if SQL is in them. ``dialect``
    None: TiCDC's, or what ``TYPED`` and a session (``logged``) say.

    Raises ValueError, whose text is a reason for operators.
    """
    spelling = spelling_of(query, dialect)
    try:
        tokens = _Tokenizer().tokenize(spelling.plain(query))
    except SqlglotError as error:
        raise ValueError(str(error).splitlines()[0]) from error
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise ValueError("the message has no statement")
    if any(token.token_type == TokenType.SEMICOLON for token in tokens):
        raise ValueError("it has more than one statement")
    words = (word for token in tokens for word in _of_token(token, spelling.doubles))
    return _grouped(_joined(words))


def _of_token(token: Token, is_doubled: bool) -> Iterator[Word]:
    """The words of a token: sqlglot has one token for PRIMARY KEY, which is two words here."""
    text = token.text
    match token.token_type:
        case TokenType.IDENTIFIER:
            yield Word("name", text)
        case TokenType.STRING | TokenType.NATIONAL_STRING:
            yield Word("text", text, value=text.replace(r"\\", "\\") if is_doubled else text)
        case TokenType.NUMBER:
            yield Word("number", text)
        case TokenType.BIT_STRING:
            yield Word("bits", text)
        case TokenType.HEX_STRING:
            yield Word("hex", text)
        case _ if text[:1].isalnum() or text[:1] in ("_", "$"):
            yield from (Word("word", part) for part in text.split())
        case _:
            yield Word("mark", text)


def _joined(words: Iterable[Word]) -> Iterator[Word]:
    """Strings side by side as one."""
    last: Word | None = None
    for word in words:
        if last is not None and last.kind == word.kind == "text":
            last = Word("text", last.text + word.text, value=last.value + word.value)
            continue
        if last is not None:
            yield last
        last = word
    if last is not None:
        yield last


def _grouped(words: Iterator[Word]) -> tuple[Word, ...]:
    """Fold parentheses into groups. Raises ValueError where they do not match."""
    stack: list[list[Word]] = [[]]
    for word in words:
        if word.upper == "(":
            stack.append([])
        elif word.upper == ")":
            if len(stack) == 1:
                raise ValueError("a closing parenthesis has no opening one")
            inner = tuple(stack.pop())
            stack[-1].append(Word("group", "", inner))
        else:
            stack[-1].append(word)
    if len(stack) > 1:
        raise ValueError("an opening parenthesis has no closing one")
    return tuple(stack[0])
