"""Cells of Maxwell's daemon: what they are, their column says."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sinks.types.casts.maxwell_cells import is_like_a_document, plain_texts
from sinks.types.mysql_type import MySQLType
from streaming.protocols.maxwell.document_text import document_text, text_cell


@pytest.mark.parametrize(
    ("value", "as_json", "as_text"),
    [
        ("x", '"x"', "x"),
        ("5", '"5"', "5"),
        ("true", '"true"', "true"),
        ('{"a": 1}', r'"{\"a\": 1}"', '{"a": 1}'),
        ("[", '"["', "["),
        ("\x01", r'"\u0001"', "\x01"),
        ("\x015", r'"\u00015"', "\x015"),
        ("05", '"05"', "05"),
        ("5\n", r'"5\n"', "5\n"),
        ('"', r'"\""', '"'),
        ("", '""', ""),
    ],
)
def test_a_text_is_a_text_or_the_document_of_one(value: str, as_json: str, as_text: str) -> None:
    cells = pa.array([text_cell(value), None])
    assert plain_texts(cells, MySQLType.parse("json")).to_pylist() == [as_json, None]
    for kind in ("varchar(9)", "enum('x')", "time"):
        assert plain_texts(cells, MySQLType.parse(kind)).to_pylist() == [as_text, None]


def test_a_document_is_one() -> None:
    for value in (True, {"a": [1, {"b": None}]}, [], {}):
        cell = document_text(value)
        assert is_like_a_document(cell)
        assert plain_texts(pa.array([cell]), MySQLType.parse("json")).to_pylist() == [cell]
    assert document_text({"a": ["é", 'x"'], "b": {}}) == r'{"a": ["é", "x\""], "b": {}}'


def test_sets_are_joined_and_decimals_have_no_exponent() -> None:
    sets = pa.array(['["a", "b,c"]', "[]", None, "[1]", "[", "a"])
    found = plain_texts(sets, MySQLType.parse("set('a')")).to_pylist()
    assert found == ["a,b,c", "", None, "[1]", "[", "a"]
    numbers = pa.array(["0E-10", "1.50", "\x011.5", None])
    found = plain_texts(numbers, MySQLType.parse("decimal(20,10)")).to_pylist()
    assert found == ["0.0000000000", "1.50", "1.5", None]
