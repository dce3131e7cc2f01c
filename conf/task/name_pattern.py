"""DM's patterns of names, as patterns of ``[filter] rules``.

In a block-allow-list a text behind ``~`` is a regular expression, found anywhere in the name. All
else is a name with wildcards: ``*`` at the end, ``?`` for one character, ``[a-c]``, ``[!a-c]``. A
bracket that does not close is itself, and there are no escapes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from conf.problems import SettingError, require

_RANGE: Final = re.compile(r"\[(!?)([^\]]+)\]")
_PART: Final = re.compile(rf"{_RANGE.pattern}|.", re.DOTALL)
_PLAIN: Final = re.compile(r"[0-9A-Za-z$_\u0080-\U0010ffff]")
_SLASH: Final = re.compile(r"(\\.)|/", re.DOTALL)


@dataclass(frozen=True, slots=True)
class NamePattern:
    """``place`` is where it stands, for errors. Raises SettingError for what is no pattern."""

    text: str
    place: str
    is_regex: bool = False

    def __post_init__(self) -> None:
        require(self.text != "", f"{self.place} must not be empty")
        try:
            self.takes("")
        except re.error as error:
            said = f"{self.place}: {self.text!r} is not a regular expression: {error}"
            raise SettingError(said) from error
        require(
            self.is_regex or "*" not in _RANGE.sub("", self.text[:-1]),
            f"{self.place}: {self.text!r}: a * stands only at the end",
        )

    @classmethod
    def of_list(cls, text: str, place: str) -> NamePattern:
        """A pattern of a block-allow-list; those of other rules know no regular expressions."""
        return cls(text.removeprefix("~"), place, is_regex=text.startswith("~"))

    @property
    def is_name(self) -> bool:
        """Whether it matches one name, its text."""
        return (
            not self.is_regex and not {"*", "?"} & set(self.text) and not _RANGE.search(self.text)
        )

    @property
    def is_all(self) -> bool:
        return self.text == "*" and not self.is_regex

    def takes(self, name: str, *, case_sensitive: bool = False) -> bool:
        """Whether it matches the name."""
        flags = re.ASCII if case_sensitive else re.ASCII | re.IGNORECASE
        if self.is_regex:
            return re.search(self.text, name, flags) is not None
        expression = "".join(_as_regex(each) for each in _PART.finditer(self.text))
        return re.fullmatch(expression, name, flags | re.DOTALL) is not None

    @property
    def rule(self) -> str:
        """The pattern as a rule has it."""
        if self.is_regex:  # in a rule it ends at the first slash without a backslash before it
            return f"/{_SLASH.sub(lambda found: found[1] or chr(92) + '/', self.text)}/"
        return "".join(_as_rule(each) for each in _PART.finditer(self.text))


def _as_regex(part: re.Match[str]) -> str:
    if part[2]:
        return f"[{'^' if part[1] else ''}{_ranges(part[2])}]"
    return {"*": ".*", "?": "."}.get(part[0], re.escape(part[0]))


def _as_rule(part: re.Match[str]) -> str:
    if part[2]:
        return f"[{part[1]}{_ranges(part[2])}]"
    return part[0] if part[0] in "*?" or _PLAIN.match(part[0]) else f"\\{part[0]}"


def _ranges(inner: str) -> str:
    """What stands in brackets; a hyphen parts two ends unless it is the first or the last."""
    out, at = "", 0
    while at < len(inner):
        is_range = inner[at + 1 : at + 2] == "-" and at + 2 < len(inner)
        ends = (inner[at], inner[at + 2]) if is_range else (inner[at],)
        out += "-".join(each if _PLAIN.match(each) else f"\\{each}" for each in ends)
        at += 3 if is_range else 1
    return out
