"""The keys of plain rows, by table, with their commit-ts.

    {"ts":470620744164048896,"scm":"shop","tbl":"orders","rid":1,"ptn":7,"t":1}

Most chunks hold few tables: the table of the first key is looked for in all of them, and so on.
Only the remaining keys are searched by the pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.protocols.json_text.message_heads import TEXT
from streaming.protocols.json_text.plain_text import some
from streaming.protocols.json_text.quote_scanner import Indexes, Mask

_NUMBER: Final = r"-?(?:0|[1-9][0-9]{0,18})"
_NAMES: Final = rf'"scm":{TEXT},"tbl":{TEXT}'
_TAIL: Final = rf'^,(?:"rid":{_NUMBER},)?(?:"ptn":{_NUMBER},)?"t":1\}}$'
_KEY: Final = rf'^(?s:\{{"ts":(?P<ts>[1-9][0-9]{{0,17}}),(?P<names>{_NAMES}){_TAIL[1:-1]})$'
_START: Final = b'{"ts":'
_DIGITS: Final = 18
_NAMES_AT: Final = len(_START) + _DIGITS + 1
_LEAST: Final = 10 ** (_DIGITS - 1)
# Never going back, as `message_heads.Heads`.
_FIRST: Final = re.compile(
    rf'\{{"ts":[1-9][0-9]{{{_DIGITS - 1}}},({_NAMES})'.replace(")*", ")*+").encode(), re.DOTALL
)
_MAX_GUESSES: Final = 8
_FEW: Final = 0.1  # a guess that finds less than that is not worth another


class RowKeys(NamedTuple):
    """``names``: of database and table, as they are written."""

    names: bytes
    at: Indexes
    commit_ts: Indexes


def row_keys(keys: pa.BinaryArray, likely: Mask) -> tuple[list[RowKeys], Indexes]:
    """The plain ones among the likely keys, which are plain texts, and the places of all others."""
    found: list[RowKeys] = []
    rest = np.flatnonzero(likely)
    for _ in range(_MAX_GUESSES):
        first = _FIRST.match(keys[int(rest[0])].as_py()) if len(rest) else None
        if first is None:
            break
        same, commit_ts = _like(first[1], some(keys, rest))
        if same.any():
            found.append(RowKeys(first[1], rest[same], commit_ts[same]))
        enough = same.sum() >= _FEW * len(rest)
        rest = rest[~same]
        if not enough:
            break
    others = [np.flatnonzero(~likely)]
    for names, at, commit_ts in _searched(keys, rest):
        if names is None:
            others.append(at)
        else:
            found.append(RowKeys(names, at, commit_ts))
    return _joined(found), np.concatenate(others)


def _like(names: bytes, keys: pa.BinaryArray) -> tuple[Mask, Indexes]:
    """Which keys are of this table, and their commit-ts."""
    end = _NAMES_AT + len(names)
    is_like = pc.starts_with(keys, _START)
    is_like = pc.and_(is_like, pc.equal(pc.binary_slice(keys, _NAMES_AT, end), names))
    longest = pc.max(pc.binary_length(keys)).as_py()  # a slice without an end fails in Arrow
    tails = pc.binary_slice(keys, end, max(end, longest))
    is_like = pc.and_(is_like, pc.match_substring_regex(tails, _TAIL))
    try:
        digits = pc.binary_slice(keys, len(_START), _NAMES_AT - 1).cast(pa.string())
        is_like = pc.and_(is_like, pc.ascii_is_decimal(digits))
        is_like = pc.and_(is_like, pc.equal(pc.binary_slice(keys, _NAMES_AT - 1, _NAMES_AT), b","))
        commit_ts = pc.if_else(is_like, digits, "0").cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        return np.zeros(len(keys), np.bool_), np.zeros(len(keys), np.int64)
    same: Mask = is_like.to_numpy(zero_copy_only=False) & (commit_ts >= _LEAST)
    return same, commit_ts


def _searched(
    keys: pa.BinaryArray, rest: Indexes
) -> Iterator[tuple[bytes | None, Indexes, Indexes]]:
    if not len(rest):
        return
    found = pc.extract_regex(some(keys, rest), _KEY)
    is_row = found.is_valid().to_numpy(zero_copy_only=False)
    yield None, rest[~is_row], rest[:0]
    chosen = found.filter(pa.array(is_row))
    commit_ts = chosen.field("ts").cast(pa.string()).cast(pa.int64()).to_numpy()
    coded = chosen.field("names").dictionary_encode()
    codes, at = coded.indices.to_numpy(), rest[is_row]
    for code, names in enumerate(coded.dictionary.to_pylist()):
        here = codes == code
        yield names, at[here], commit_ts[here]


def _joined(found: list[RowKeys]) -> list[RowKeys]:
    """One for each table, by rising place."""
    tables: dict[bytes, list[RowKeys]] = {}
    for each in found:
        tables.setdefault(each.names, []).append(each)
    joined = []
    for names, parts in tables.items():
        if len(parts) == 1:
            joined.append(parts[0])
            continue
        at = np.concatenate([part.at for part in parts])
        order = np.argsort(at)
        commit_ts = np.concatenate([part.commit_ts for part in parts])
        joined.append(RowKeys(names, at[order], commit_ts[order]))
    return joined
