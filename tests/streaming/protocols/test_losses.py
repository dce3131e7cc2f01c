"""Which columns lose something is told by their definitions, as the matrix of types finds it."""

from __future__ import annotations

import pytest

from coordination.errors import TidelakeError
from coordination.model import TableName
from sinks.types.table_schema import TableSchema
from streaming.changefeed.schema_file import read_definitions
from streaming.protocols.decoders import losses_of
from streaming.protocols.rows.losses import LossyTypes, in_words, lossy_columns
from tests.services import wire
from tests.streaming.apply.type_matrix.matrix import LOST, PROTOCOLS, ROWS

EXACT_BY_DOUBLE = {"c_dec2"}  # decimal(10,2): a double has its digits
ZERO = "a zero date comes as 1970-01-01"


def defined(sql: str) -> TableSchema:
    schema = read_definitions(sql, lambda _: True).schema(TableName("shop", "t"))
    assert schema is not None
    return schema


def all_types() -> TableSchema:
    (query,) = (
        each["query"]
        for each in wire.ddls()
        if each["query"].startswith("CREATE TABLE `shop`.`all")
    )
    return defined(query.replace("`alltypes`", "`t`"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_types_that_the_matrix_finds_lossy_are_told(protocol: str) -> None:
    columns = all_types().delivered
    found = lossy_columns(columns, losses_of(protocol, is_numbered=False))
    wanted = {
        column
        for (of, row) in LOST
        if of == protocol
        for column in ROWS[row].split()
        if column not in EXACT_BY_DOUBLE
    }
    with_defaults = {each.name for each in columns if each.nullable and each.default is not None}
    assert found.keys() - with_defaults == wanted - with_defaults
    if protocol != "debezium":
        assert not found


def test_why_is_told_and_columns_of_one_loss_stand_together() -> None:
    columns = defined(
        "CREATE TABLE shop.t (id INT PRIMARY KEY, a DECIMAL(15,2), b DECIMAL(16,2), c DECIMAL(20), "
        "d DATE, e DATETIME NOT NULL, n INT DEFAULT 5, m INT NOT NULL DEFAULT 5, "
        "v INT AS (id) VIRTUAL, u BIGINT UNSIGNED, s DATETIME(3) DEFAULT NOW(3));"
    ).delivered
    found = lossy_columns(columns, losses_of("debezium", is_numbered=False))
    assert found.keys() == {"b", "c", "d", "e", "n", "s"}
    year = "a date before the year 100 comes as one of 1970 to 2069"
    assert (found["d"], found["e"]) == (year, f"{year}; {ZERO}")
    assert found["s"] == f"{year}; NULL comes as 1970-01-01"
    assert in_words(found).startswith("b, c (a decimal comes as a double, of which 15 digits are")
    of_connectors = lossy_columns(columns, losses_of("debezium", is_numbered=True))
    assert of_connectors.keys() == {"e", "n", "s"}
    assert of_connectors["e"] == ZERO
    assert not lossy_columns(columns, losses_of("canal-json", is_numbered=True))


def test_maxwells_losses_are_those_of_both_its_writers() -> None:
    columns = defined(
        "CREATE TABLE shop.t (id INT PRIMARY KEY, a VARBINARY(9), b JSON, c ENUM('x'), d TIME, "
        "e VARCHAR(9), f DECIMAL(65,30), g DATE);"
    ).delivered
    assert lossy_columns(columns, losses_of("maxwell", is_numbered=True)).keys() == {*"abcd"}


def test_a_text_that_is_null_in_csv() -> None:
    columns = defined("CREATE TABLE shop.t (id INT PRIMARY KEY, a VARCHAR(9), b BLOB);").delivered
    losses = losses_of("csv", is_numbered=False, lost_text="NULL")
    assert lossy_columns(columns, losses) == {"a": "the text 'NULL' comes as NULL"}


def test_strict_types_refuses_a_table_with_a_sentence() -> None:
    schema = defined("CREATE TABLE shop.t (id INT PRIMARY KEY, d DATE);")
    losses = losses_of("debezium", is_numbered=False)
    LossyTypes(losses, "protocol=debezium").refuse("shop.t", schema)
    with pytest.raises(
        TidelakeError,
        match=r"^table shop\.t: strict-types: protocol=debezium loses values of d \(a date .*\)\. "
        r"Leave these columns out .*, or set strict-types = false",
    ):
        LossyTypes(losses, "protocol=debezium", is_strict=True).refuse("shop.t", schema)
