"""One row's text, cut into what all rows like it have, and its values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from streaming.protocols.json_text.strict_json import Number

_FIRST: Final = ["database", "table", "type"]
_SIDES: Final = (["data"], ["data", "old"], ["old"])
_VALUES_OF_KEY: Final = "primary_key"
_READ: Final = json.JSONDecoder(parse_int=Number, parse_float=Number)


class NotPlain(Exception):
    """The text is written in another way than either sender's, or has a document."""


class Form(Enum):
    """What a value is in each row."""

    NUMBER = "number"  # a whole one, above zero or zero
    TEXT = "text"
    ANY = "any"  # all but an array and an object


@dataclass(frozen=True, slots=True)
class Slot:
    """A value, and the bytes that stand before it; the ``column`` of the row that has it."""

    before: bytes
    form: Form
    column: str | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """``end``: what stands behind the last value, up to the old row if there is one; ``old``: that
    row's columns, and how their names are written. A row may lack some of them."""

    slots: tuple[Slot, ...]
    end: bytes
    old: tuple[tuple[str, bytes], ...] | None

    @staticmethod
    def of(text: str) -> Sample:
        """From a message of one row. Raises NotPlain."""
        members = list(_members(text, 0))
        names = [each.name for each in members]
        sides = [each for each in members if each.name in ("data", "old")]
        if names[: len(_FIRST)] != _FIRST or names[-len(sides) :] not in _SIDES or len(sides) > 2:
            raise NotPlain
        leaves = [
            leaf for each in members[len(_FIRST) : -len(sides)] for leaf in _leaves(text, each)
        ]
        row = list(_members(text, sides[0].begin))
        leaves += [_Leaf(each.begin, each.end, Form.ANY, each.name) for each in row]
        slots, last = list[Slot](), 0
        for leaf in leaves:
            slots.append(Slot(text[last : leaf.begin].encode(), leaf.form, leaf.column))
            last = leaf.end
        end, old = text[last:], None
        if len(sides) > 1:
            end = text[last : sides[1].begin]
            written = {each.name: text[each.at : each.begin].encode() for each in row}
            old = tuple(written.items())
        pieces = (end.encode(), *(slot.before for slot in slots), *dict(old or ()).values())
        if text[sides[-1].end :] != "}" or any(b"\\" in each for each in pieces):
            raise NotPlain
        return Sample(tuple(slots), end.encode(), old)


@dataclass(frozen=True, slots=True)
class _Member:
    """``at``: of its name; its value is ``[begin, end)``."""

    name: str
    at: int
    begin: int
    end: int
    value: Any


@dataclass(frozen=True, slots=True)
class _Leaf:
    begin: int
    end: int
    form: Form
    column: str | None = None


def _members(text: str, at: int) -> Iterator[_Member]:
    """The members of the object there. Raises NotPlain where it has blanks, or none."""
    opening = "{"
    while text[at : at + 1] == opening:
        name, behind = _value(text, at + 1)
        if type(name) is not str or text[behind : behind + 1] != ":":
            raise NotPlain
        value, end = _value(text, behind + 1)
        yield _Member(name, at + 1, behind + 1, end, value)
        at, opening = end, ","
    if text[at : at + 1] != "}":
        raise NotPlain


def _value(text: str, at: int) -> tuple[Any, int]:
    try:
        found, end = _READ.raw_decode(text, at)
    except ValueError as error:
        raise NotPlain from error
    return found, end


def _leaves(text: str, member: _Member) -> Iterator[_Leaf]:
    """The values of a member that differ from row to row."""
    value = member.value
    if isinstance(value, Number):
        yield _Leaf(member.begin, member.end, Form.NUMBER if value.isdigit() else Form.ANY)
    elif isinstance(value, str):
        yield _Leaf(member.begin, member.end, Form.TEXT)
    elif isinstance(value, list) and member.name == _VALUES_OF_KEY:
        at = member.begin
        for _ in value:
            each, end = _value(text, at + 1)
            if isinstance(each, dict | list):
                raise NotPlain
            yield _Leaf(at + 1, end, Form.ANY)
            at = end
