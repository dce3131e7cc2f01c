"""The schema file where messages are in avro: one type stands for several, and names are safe."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from coordination.errors import ConfigError
from coordination.model import SEALED_TS, TableName
from sinks.ddl.effects import CreateTable
from sinks.ddl.statements import read_ddl
from streaming.apply.newest_whole_row import newest_whole_row
from streaming.apply.row_block import RowBlock
from streaming.changefeed.schema_file import definitions_of, read_definitions, stored_text
from streaming.changefeed.schema_from_rows import WholeRow, unlike
from streaming.protocols.avro.decoder import decode
from streaming.protocols.contract import Block, Kind, with_key
from tests.conf.test_load import load
from tests.services import wire
from tests.streaming.protocols.canal_json.reading import EveryTable, chunk

COARSE = """
USE shop;
CREATE TABLE `a-b` (
  `编号` TINYINT UNSIGNED NOT NULL, `b` BIT, `d` DECIMAL, `p` DECIMAL(12,2) UNSIGNED,
  `v` VARCHAR(9), `c` CHAR(3) CHARACTER SET binary, `l` LONGBLOB, `j` JSON, `f` FLOAT UNSIGNED,
  `e` ENUM('a,b','it''s','c\\\\'), `t` DATETIME(3), `y` YEAR, UNIQUE KEY (`编号`)
);
"""
SENT = {
    "__": "int unsigned", "b": "bit(1)", "d": "decimal(10,0)", "p": "decimal(12,2)", "v": "text",
    "c": "blob", "l": "blob", "j": "json", "f": "float", "e": "enum('a,b','its','c')",
    "t": "datetime(3)", "y": "year",
}  # fmt: skip


def test_coarse_types_and_safe_names_fit() -> None:
    of = read_definitions(COARSE, lambda _: True).schema(TableName("shop", "a-b"))
    assert of is not None
    assert unlike(of, SENT, ["__"], is_coarse=True) == []
    assert unlike(of, {**SENT, "p": "decimal", "d": "decimal"}, ["__"], is_coarse=True) == []
    for name, told in (
        *(("__", "int"), ("__", "bigint unsigned"), ("b", "bit(2)"), ("d", "decimal(10,1)")),
        *(("v", "blob"), ("c", "text"), ("e", "enum('a,b','its')"), ("e", "set('a')")),
        *(("t", "datetime(6)"), ("f", "double"), ("j", "text"), ("y", "int")),
    ):
        (difference,) = unlike(of, {**SENT, name: told}, ["__"], is_coarse=True)
        assert f"in the file and {told} there" in difference
    (difference,) = unlike(of, SENT, [], is_coarse=True)
    assert difference == "the primary key is 编号 in the file and none there"


def test_tables_are_found_by_safe_names(tmp_path: Path) -> None:
    """The filter may have either name."""
    avro = "&enable-tidb-extension=true&avro-enable-watermark=true&schema-registry=http://h:1"
    for rules in ("['*.*']", "['shop.`a-b`']", "['shop.a_b']"):
        uri = f"kafka://h:9092/shop?protocol=avro{avro}"
        loaded = load(f"[filter]\nrules = {rules}", tmp_path=tmp_path, source_uri=uri)
        found = replace(loaded.changefeed, schema_text=COARSE)
        defined = definitions_of(found)
        assert defined.schema(TableName("shop", "A_b")) is not None
        assert defined.schema(TableName("shop", "a-b")) is None
        assert "a-b" in stored_text(COARSE, found.filter, "avro")
        both = replace(found, schema_text=COARSE + "CREATE TABLE `a b` (id INT PRIMARY KEY);")
        if rules == "['*.*']":
            with pytest.raises(ConfigError, match=r"both are shop\.a_b in the messages"):
                definitions_of(both)


@pytest.mark.parametrize("variant", ["avro", "avro-string-modes"])
def test_what_ticdc_recorded_in_avro_fits_its_own_create_tables(variant: str) -> None:
    created = {
        found.name: found.schema
        for message in wire.messages("canal-json")
        for each in [json.loads(message.value or b"")]
        if each["isDdl"] and each["type"] == "CREATE" and each["table"]
        for found in read_ddl(each["sql"], "CREATE", each["database"], each["table"]).effects
        if isinstance(found, CreateTable)
    }
    checked = set()
    schemas = wire.schemas(variant)
    for sent in wire.partitions(variant).values():
        values = [with_key(each.key, each.value) for each in sent]
        for block in decode(chunk(values), EveryTable(None), schemas=schemas):
            told = whole_row(block)
            if told is not None and block.name in created and block.name not in checked:
                checked.add(block.name)
                assert unlike(created[block.name], told.types, told.key, is_coarse=True) == []
    assert len(checked) > 4


def whole_row(block: Block) -> WholeRow | None:
    is_row = block.kind is Kind.ROW and not block.token
    found = newest_whole_row([RowBlock.of(block)], SEALED_TS) if is_row else None
    return found if isinstance(found, WholeRow) else None
