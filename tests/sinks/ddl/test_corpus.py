"""Statements of TiDB's and TiCDC's own tests, each with the effects that it must have.

In corpus.sql a statement is a line that ends with a semicolon; the line below it says its effects.
"""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from sinks.ddl.effects import AlterTable
from sinks.ddl.evolve import evolved
from sinks.ddl.statements import read_ddl
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column, TableSchema
from tests.sinks.ddl.told import SCHEMA, told

TABLE = TableSchema(
    columns=tuple(Column(name=name, type=MySQLType.parse("int")) for name in "abc"), key=()
)
LINES = (Path(__file__).parent / "corpus.sql").read_text(encoding="utf-8").splitlines()
CORPUS = {
    statement.removesuffix(";"): effects.removeprefix("-- ")
    for statement, effects in pairwise(LINES)
    if statement.endswith(";") and not statement.startswith("--")
}


def test_the_corpus_is_large() -> None:
    assert len(CORPUS) >= 400
    assert sum(line.endswith(";") and not line.startswith("--") for line in LINES) == len(CORPUS)


def test_no_damaged_statement_raises() -> None:
    random = Random(16)
    for query in CORPUS:
        words = re.findall(r"\w+|\s+|.", query)
        for damaged in (
            query[: random.randrange(len(query))],
            "".join(random.sample(words, len(words))),
            "".join(word for word in words if random.random() < 0.9),
        ):
            effects = read_ddl(damaged, "", SCHEMA, "").effects
            for effect in effects:
                if isinstance(effect, AlterTable):
                    with suppress(ValueError):
                        evolved(TABLE, effect.changes)
            assert effects


@pytest.mark.parametrize(("query", "effects"), CORPUS.items(), ids=lambda text: text[:60])
def test_a_statement_has_its_effects(query: str, effects: str) -> None:
    assert told(read_ddl(query, "", SCHEMA, "")) == effects
