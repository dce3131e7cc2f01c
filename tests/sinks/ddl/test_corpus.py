"""Statements of TiDB's and TiCDC's own tests, each with the effects that it must have.

In corpus.sql a statement is a line that ends with a semicolon; the line below it says its effects.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from sinks.ddl.statements import read_ddl
from tests.sinks.ddl.told import SCHEMA, told

LINES = (Path(__file__).parent / "corpus.sql").read_text(encoding="utf-8").splitlines()
CORPUS = {
    statement.removesuffix(";"): effects.removeprefix("-- ")
    for statement, effects in pairwise(LINES)
    if statement.endswith(";") and not statement.startswith("--")
}


def test_the_corpus_is_large() -> None:
    assert len(CORPUS) >= 400
    assert sum(line.endswith(";") and not line.startswith("--") for line in LINES) == len(CORPUS)


@pytest.mark.parametrize(("query", "effects"), CORPUS.items(), ids=lambda text: text[:60])
def test_a_statement_has_its_effects(query: str, effects: str) -> None:
    assert told(read_ddl(query, "", SCHEMA, "")) == effects
