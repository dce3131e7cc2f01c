"""Messages by the bytes that they begin with: a hint which table they are of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.protocols.json_text.plain_text import some
from streaming.protocols.json_text.quote_scanner import Indexes

TEXT: Final = r'"(?:[^"\\]|\\.)*"'
_MAX_GUESSES: Final = 8
_FEW: Final = 0.1  # a guess that finds less than that is not worth another


@dataclass(frozen=True, slots=True)
class Heads:
    """``head``: of the messages of one table, as RE2 has it. ``pattern``: the same for Python. It
    never goes back: Python would keep a hundred bytes for each character to go back to."""

    head: str
    pattern: re.Pattern[bytes]

    @staticmethod
    def of(head: str) -> Heads:
        return Heads(head, re.compile(head.replace(")*", ")*+").encode(), re.DOTALL))


def by_head(
    values: pa.BinaryArray, positions: Indexes, heads: Heads
) -> tuple[dict[bytes, Indexes], Indexes]:
    """The messages at ``positions`` by their head, and the messages that begin in another way.

    Most chunks hold few tables: the head of the first message is looked for in all of them, and so
    on. Only the remaining messages are searched by the pattern.
    """
    groups: dict[bytes, Indexes] = {}
    rest = positions
    for _ in range(_MAX_GUESSES):
        if not len(rest):
            break
        head = heads.pattern.match(values[int(rest[0])].as_buffer())
        if head is None:
            break
        same = pc.starts_with(some(values, rest), head[0]).to_numpy(zero_copy_only=False)
        groups[head[0]] = rest[same]
        enough = same.sum() >= _FEW * len(rest)
        rest = rest[~same]
        if not enough:
            break
    others: list[Indexes] = []
    for found, where in _searched(values, rest, heads.head):
        if found is None:
            others.append(where)
        else:
            groups[found] = (
                np.sort(np.concatenate([groups[found], where])) if found in groups else where
            )
    return groups, np.concatenate(others) if others else rest[:0]


def _searched(
    values: pa.BinaryArray, rest: Indexes, pattern: str
) -> Iterator[tuple[bytes | None, Indexes]]:
    if not len(rest):
        return
    heads = pc.extract_regex(some(values, rest), f"^(?s:(?P<head>{pattern}))").field("head")
    coded = heads.dictionary_encode(null_encoding="encode")
    codes = coded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    bounds = np.flatnonzero(np.diff(codes[order])) + 1
    for part in np.split(order, bounds):
        yield coded.dictionary[int(codes[part[0]])].as_py(), rest[part]
