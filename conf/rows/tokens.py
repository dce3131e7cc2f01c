"""Cuts an expression into tokens, each with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from conf.problems import SettingError

_SHOWN: Final = 20  # characters of the expression in an error
_TOKEN: Final = re.compile(
    r"""\s+
  | (?P<number> (?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)? (?![\w$]) )
  | (?P<word>   [A-Za-z_$\u0080-\U0010ffff][\w$]* )
  | (?P<name>   `(?:[^`]|``)+` )
  | (?P<text>   '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" )
  | (?P<mark>   <=>|<=|>=|<>|!=|&&|\|\||[=<>+*%(),.-] )
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    kind: str  # number, word, name, text, mark, end
    text: str
    at: int

    @property
    def upper(self) -> str:
        """To compare with keywords and marks; empty for what stands in quotes."""
        return self.text.upper() if self.kind in ("word", "mark") else ""


def tokens(text: str) -> Iterator[Token]:
    """The last one is of kind "end". Raises SettingError."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise refusal(text, at + 1, "this is not read here")
        if match.lastgroup is not None:
            yield Token(match.lastgroup, match[0], at + 1)
        at = match.end()
    yield Token("end", "", at + 1)


def refusal(text: str, at: int, why: str) -> SettingError:
    """``at``: the place of a character, from 1."""
    here = text[at - 1 : at - 1 + _SHOWN] or "the end"
    return SettingError(f": at character {at} ({here}): {why}")
