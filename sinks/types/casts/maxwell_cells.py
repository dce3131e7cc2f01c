"""Cells as Maxwell's daemon writes them in JSON (``contract.Cells.MAXWELL``), as the texts that the
casts want. It writes a JSON column's document among the other values, as it is:

    {"id":1,"doc":{"a":1},"doc2":"x","name":"5","tags":["a","b"]}
      1      {"a": 1}      x          <mark>5    ["a", "b"]

So a text and a document of one are the same cell, and a text that would be read as another document
has MARK before it. What a cell is, its column says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sinks.types.casts.connect_cells import decimal_texts
from sinks.types.mysql_type import MySQLType

MARK: Final = "\x01"
_NUMBER: Final = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
LIKE_A_DOCUMENT: Final = rf"^(?:[\[{{\x01]|(?:{_NUMBER}|true|false|null)$)"
_DOCUMENT: Final = re.compile(LIKE_A_DOCUMENT.replace("$)", r"\Z)"))


def is_like_a_document(text: str) -> bool:
    return _DOCUMENT.match(text) is not None


def plain_texts(cells: pa.Array, of: MySQLType) -> pa.Array:
    """``cells`` are strings; null stays null. What is no value of the type stays as it is: the
    casts refuse it."""
    if cells.null_count == len(cells):
        return cells
    if of.name == "json":
        return _each(cells, _document)
    is_marked = pc.fill_null(pc.starts_with(cells, MARK), False)
    if pc.any(is_marked).as_py():
        cells = pc.if_else(is_marked, pc.utf8_slice_codeunits(cells, len(MARK)), cells)
    if of.name == "set":
        return _each(cells, _names)
    return decimal_texts(cells, of) if of.name == "decimal" else cells


def _each(cells: pa.Array, make: Callable[[str], str]) -> pa.Array:
    coded = cells.dictionary_encode()
    texts = pa.array([make(each) for each in coded.dictionary.to_pylist()], cells.type)
    return texts.take(coded.indices)


def _document(cell: str) -> str:
    if is_like_a_document(cell) and not cell.startswith(MARK):
        return cell
    return json.dumps(cell.removeprefix(MARK), ensure_ascii=False)


def _names(cell: str) -> str:
    """An array of names, joined."""
    if not cell.startswith("["):
        return cell
    try:
        return ",".join(json.loads(cell))
    except (ValueError, TypeError):
        return cell
