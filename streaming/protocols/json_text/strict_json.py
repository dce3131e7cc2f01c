"""One JSON object by Python's own parser, and its members by the type that they must have.

Stricter than JSON as others read it, so that nothing is guessed. These make a text malformed:
``NaN``, half a surrogate pair, bytes that are no UTF-8, nesting below ``MAX_DEPTH``, and a large
text of more than ``MAX_PARTS``. A name that stands twice is told (``Repeating``). A number stays
the text that it is.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, NoReturn

MAX_DEPTH: Final = 100  # Python's parser recurses
# Texts, brackets and commas: each may take a hundred bytes of memory. TiDB's 4,096 columns have
# fewer than a tenth of them, with types and old values.
MAX_PARTS: Final = 1_000_000
_LARGE: Final = 4 << 20  # a smaller text is parsed whatever it is
_INT64: Final = range(-(2**63), 2**63)
_TEXTS: Final = frozenset((str, type(None)))
# What Go's encoder escapes besides what all do.
GO_ESCAPED: Final = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)
NOTHING: Final[Mapping[str, Any]] = {}
# A text without an end goes to the message's: else each quote in it would be looked at as another.
_NESTING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]|[\]}]', re.DOTALL)
_PARTS: Final = re.compile(_NESTING.pattern + "|,", re.DOTALL)
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


class Malformed(ValueError):
    """Not the text of what it should be."""


class Number(str):
    __slots__ = ()


class Repeating(dict[str, Any]):
    """An object that has names twice: ``twice``."""

    twice: frozenset[str] = frozenset()


def parse(value: bytes) -> dict[str, Any]:
    """The object that the message is; numbers as ``Number``.

    Raises ``Malformed`` where it is none.
    """
    try:
        text = value.decode()
        if _depth_exceeds(text, MAX_DEPTH) or (len(text) > _LARGE and _has_many_parts(text)):
            raise Malformed
        found = _DECODER.decode(text)
        if _SURROGATE.search(value) is not None:
            json.dumps(found, ensure_ascii=False).encode()  # refuses half a pair
    except (ValueError, RecursionError) as error:
        raise Malformed from error
    if not isinstance(found, dict):
        raise Malformed
    return found


def parse_each(value: bytes) -> list[tuple[dict[str, Any], bytes]]:
    """The objects that stand one behind the other, at least one, each with its own bytes. As strict
    as ``parse``."""
    try:
        return [(parse(value), value)]
    except Malformed:
        pass
    found = list[tuple[dict[str, Any], bytes]]()
    try:
        text = value.decode()
        if _depth_exceeds(text, MAX_DEPTH) or (len(text) > _LARGE and _has_many_parts(text)):
            raise Malformed
        at = 0
        while at < len(text):
            _, end = _DECODER.raw_decode(text, at)
            one = text[at:end].encode()
            found.append((parse(one), one))
            at = end
    except (ValueError, RecursionError) as error:
        raise Malformed from error
    if not found:
        raise Malformed
    return found


def as_texts(values: Mapping[str, Any]) -> Mapping[str, str | None]:
    """Cells as text; the same object where they are."""
    if _TEXTS.issuperset(map(type, values.values())):
        return values
    return {name: as_text(value) for name, value in values.items()}


def as_text(value: Any) -> str | None:
    if type(value) is str or value is None:
        return value
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    raise Malformed


def member_boolean(fields: Mapping[str, Any], name: str) -> bool:
    value = fields.get(name)
    if value is True or value is False or value is None:
        return value is True
    raise Malformed


def member_integer(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, Number) or len(value) > 20 or not value.lstrip("-").isdigit():
        raise Malformed
    number = int(value)
    if number not in _INT64:
        raise Malformed
    return number


def member_list(fields: Mapping[str, Any], name: str) -> list[Any] | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, list):
        raise Malformed
    return value


def member_object(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = fields.get(name)
    return NOTHING if value is None else as_object(value)


def as_object(value: Any) -> Mapping[str, Any]:
    if type(value) is not dict:
        raise Malformed
    return value


def _depth_exceeds(text: str, limit: int) -> bool:
    if text.count("[") + text.count("{") <= limit:
        return False
    depth = 0
    for found in _NESTING.finditer(text):
        mark = found[0][0]
        depth += (mark in "[{") - (mark in "]}")
        if depth > limit:
            return True
    return False


def _has_many_parts(text: str) -> bool:
    return next(islice(_PARTS.finditer(text), MAX_PARTS, None), None) is not None


def _refuse(_constant: str) -> NoReturn:
    raise Malformed


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    counts = Counter(name for name, _ in pairs)
    repeating = Repeating(found)
    repeating.twice = frozenset(name for name, count in counts.items() if count > 1)
    return repeating


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_int=Number, parse_float=Number, parse_constant=_refuse
)
