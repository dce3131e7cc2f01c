"""One row's payload and key, cut into what all rows like it have, and its values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from streaming.protocols.debezium.envelope import Fields

_TOKEN: Final = re.compile(
    rb'"(?:[^"\\]|\\.)*+"|[{}:,]|-?[0-9][0-9.eE+-]*|true|false|null', re.DOTALL
)
_MOST_TOKENS: Final = 100_000
# Of ``source``, what differs from row to row. TiCDC tells the rest of these as nothing.
_VARYING: Final = frozenset(
    ("ts_ms", "ts_us", "ts_ns", "snapshot", "gtid", "file", "pos", "row", "thread", "query")
)
_VARYING_OF_TICDC: Final = frozenset(("ts_ms", "commit_ts", "start_ts"))
_TIMES: Final = ("ts_ms", "ts_us", "ts_ns")
Path = tuple[str, ...]


class Form(Enum):
    """What a value is for. All but columns are of the sample's kind in each row."""

    COMMIT_TS = "commit_ts"
    COLUMN = "column"
    NUMBER = "number"
    TEXT = "text"
    ANY = "any"  # of the key


@dataclass(frozen=True, slots=True)
class Slot:
    """A value, and the bytes that stand before it. ``path``: the names that lead to it."""

    before: bytes
    form: Form
    path: Path


@dataclass(frozen=True, slots=True)
class Sample:
    """``end``: what stands behind the last value."""

    slots: tuple[Slot, ...]
    end: bytes

    @staticmethod
    def of(text: bytes, payload: int, fields: Fields) -> Sample | None:
        """From an inner object of a value, ``fields``, with ``payload`` bytes, and behind it that
        of a key. None where it is written in a way that is not expected."""
        slots, last = list[Slot](), 0
        source = fields.get("source")
        is_ticdc = isinstance(source, dict) and source.get("connector") == "TiCDC"
        for path, begin, end in _leaves(text):
            is_key = begin >= payload
            if not path or (is_key and len(path) > 1):
                return None
            form = Form.ANY if is_key else _form(path, text[begin:end], is_ticdc=is_ticdc)
            if form is not None:
                slots.append(Slot(text[last:begin], form, path))
                last = end
        sample = Sample(tuple(slots), text[last:])
        is_plain = not any(b"\\" in each for each in (sample.end, *(s.before for s in slots)))
        return sample if is_plain else None


def _leaves(text: bytes) -> Iterator[tuple[Path, int, int]]:
    """The values that are no objects, and where they stand. If something else is met, the last one
    has no names."""
    path, is_name, at = list[str](), False, 0
    for number, match in enumerate(_TOKEN.finditer(text)):
        if match.start() != at or number > _MOST_TOKENS:
            break
        at, token = match.end(), match[0]
        if token == b"{":
            path.append("")
            is_name = True
        elif not path:  # between the two objects there is nothing
            at = -1
            break
        elif token == b"}":
            path.pop()
        elif token in (b",", b":"):
            is_name = token == b","
        elif is_name:
            path[-1] = token[1:-1].decode()  # no name with a backslash is taken
        else:
            yield tuple(path), match.start(), at
    if at != len(text) or path:
        yield (), at, at


def _form(path: Path, value: bytes, *, is_ticdc: bool) -> Form | None:
    """None: it is the same in each row."""
    if path[0] in ("before", "after"):
        return Form.COLUMN if len(path) == 2 else None
    is_varying = (
        (len(path) == 1 and path[0] in _TIMES)
        or path[0] == "transaction"
        or (
            len(path) == 2
            and path[0] == "source"
            and path[1] in (_VARYING_OF_TICDC if is_ticdc else _VARYING)
        )
    )
    if not is_varying or value in (b"null", b"true", b"false"):
        return None
    if value.startswith(b'"'):
        return Form.TEXT
    return Form.COMMIT_TS if path == ("source", "commit_ts") else Form.NUMBER
