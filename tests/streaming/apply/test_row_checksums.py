"""With ``integrity-check-level = correctness`` a row that was changed on its way is an error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from sinks.target.write_mode import WriteMode
from sinks.types.casts.checksums import of_names, row_checksums
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import TableSchema
from streaming.apply.change_log import change_log_rows
from streaming.apply.table_task import TableTask
from streaming.protocols.avro.decoder import decode as decode_avro
from streaming.protocols.contract import DAMAGED, Kind, tables_told, version_of, with_key
from streaming.protocols.decoders import decoder_of
from streaming.protocols.rows.safe_names import with_names
from tests.services import wire
from tests.services.row_checksum import checksum_of
from tests.streaming.apply.blocks import A, Row, Text, blocks_of
from tests.streaming.apply.resolved import PLAIN, RULES, by_key, errors, numbered, resolved
from tests.streaming.protocols.canal_json.reading import EveryTable, chunk

UNTOLD = -7
STRICT = replace(RULES, verifies=True)
TOLD = replace(PLAIN, by_id=("v", "id"))  # ``id`` has been added later
COLUMNS = [
    {"name": "v", "dataType": {"mysqlType": "varchar"}},
    {"name": "id", "dataType": {"mysqlType": "bigint"}},
]


def row(op: str, ts: int, data: Text, wrong: int = 0, checksum: int | None = None) -> Row:
    if checksum is None:
        checksum = checksum_of(data, COLUMNS) + wrong
    return Row(op=op, ts=ts, data=data, checksum=checksum, is_encoded=True)


ROWS = numbered(
    [
        row("INSERT", 10, {"id": "1", "v": "a"}),
        row("INSERT", 10, {"id": "2", "v": "a"}, wrong=1),
        row("INSERT", 10, {"id": "3", "v": None}),
        row("INSERT", 10, {"id": "4", "v": "a"}, checksum=DAMAGED),
        row("INSERT", 10, {"id": "5", "v": "a"}, checksum=0),
        row("UPDATE", 20, {"id": "1", "v": "b"}, wrong=1),
        row("DELETE", 20, {"id": "5", "v": "a"}, wrong=1),
        row("INSERT", 10, {"id": "x", "v": "a"}, checksum=5),
    ]
)


def test_a_key_keeps_its_last_good_change() -> None:
    found = resolved(ROWS, TOLD, rules=STRICT)
    assert by_key(found) == {1: "a", 3: None, 5: None}
    said = errors(found)
    assert {at: each for at, (each, _) in said.items()} == {
        1: "checksum", 3: "checksum", 5: "checksum", 7: "cast",
    }  # fmt: skip
    assert "TiCDC computed" in said[1][1]
    assert "TiCDC found the row damaged" in said[3][1]


def test_without_it_nobody_looks() -> None:
    found = resolved(ROWS, TOLD)
    assert by_key(found) == {1: "b", 2: "a", 3: None, 4: "a", 5: None}
    assert [each for each, _ in errors(found).values()] == ["cast"]


def test_where_the_order_of_the_columns_was_not_told_only_ticdc_s_verdict_counts() -> None:
    for of in (PLAIN, replace(TOLD, by_id=("v", "id", "gone")), replace(TOLD, by_id=("id",))):
        found = resolved(ROWS, of, rules=STRICT)
        assert [at for at, (each, _) in errors(found).items() if each == "checksum"] == [3]
    typed = [replace(each, is_encoded=False) for each in ROWS]
    found = resolved(typed, TOLD, rules=STRICT)
    assert [at for at, (each, _) in errors(found).items() if each == "checksum"] == [3]


def test_the_row_of_a_delete_counts_where_it_is_kept() -> None:
    """One that has its key alone cannot be compared."""
    rows = numbered(
        [
            row("DELETE", 10, {"id": "1", "v": "a"}),
            row("DELETE", 10, {"id": "2", "v": "a"}, wrong=1),
            row("DELETE", 10, {"id": "3"}, wrong=1),
        ]
    )
    found = resolved(rows, TOLD, rules=STRICT, form=WriteMode(soft_delete=True))
    assert [*errors(found)] == [1]


def test_a_change_log_leaves_such_events_out() -> None:
    form = WriteMode(mode="append")
    task = TableTask(name=A, schema=TOLD, checkpoint=0, form=form)  # type: ignore[arg-type]
    found = change_log_rows(task, blocks_of(ROWS), 1000, STRICT)  # type: ignore[arg-type]
    classes = {each["position"]: each["error_class"] for each in found.errors.to_pylist()}
    assert classes == {
        1: "checksum", 3: "checksum", 5: "checksum", 6: "checksum", 7: "cast",
    }  # fmt: skip


def test_a_virtual_column_is_in_no_row() -> None:
    """A DELETE without it is whole."""
    (id_, v), name = TOLD.columns, "twice"
    virtual = replace(id_, name=name, generated="virtual")
    of = TableSchema(columns=(id_, v, virtual), key=("id",), by_id=("v", name, "id"))
    found = resolved(ROWS[:3], of, rules=STRICT)
    assert [*errors(found)] == [1]


def test_a_table_of_keys_alone_is_looked_at_too() -> None:
    (id_, _) = TOLD.columns
    of = TableSchema(columns=(id_,), key=("id",), by_id=("id",))
    rows = numbered([row("INSERT", 10, {"id": "1"}), row("INSERT", 10, {"id": "2"}, wrong=1)])
    assert [*errors(resolved(rows, of, rules=STRICT))] == [1]


def test_typed_cells_are_compared_too() -> None:
    """As of simple in Avro. Where a column has cells of another type, nothing can be said."""
    typed = [
        replace(each, data={**each.data, "id": int(each.data["id"])}, kinds={"id": pa.int64()})
        for each in ROWS[:3]
    ]
    assert [*errors(resolved(typed, TOLD, rules=STRICT))] == [1]
    odd = [replace(each, kinds={"v": pa.binary()}) for each in ROWS[:2]]
    assert not errors(resolved(odd, TOLD, rules=STRICT))


def test_rows_of_avro_have_their_columns_by_their_ids() -> None:
    """So no message elsewhere tells them, and rows in two orders are compared each in its own."""
    told = [{"name": "id", "dataType": {"mysqlType": "bigint"}}, COLUMNS[0]]
    rows = [replace(each, is_encoded=False, is_avro=True) for each in ROWS[:7]]
    turned = [
        replace(each, data={"v": each.data["v"], "id": each.data["id"]}, position=20 + n)
        for n, each in enumerate(row("INSERT", 30, {"id": "7", "v": "x"}, w) for w in (0, 1))
    ]
    turned = [replace(each, is_encoded=False, is_avro=True) for each in turned]
    own = [
        replace(each, checksum=checksum_of(each.data, told) + wrong)
        for each, wrong in zip(rows[:2], (0, 1), strict=True)
    ]
    found = resolved([*own, *rows[2:5], *turned], PLAIN, rules=STRICT)
    assert {at for at, (each, _) in errors(found).items() if each == "checksum"} == {1, 3, 21}


def test_names_of_enum_and_set_in_avro() -> None:
    """An empty text is no member, or the member of that name: nobody knows."""
    id_, v = PLAIN.columns
    kinds = {"enum('a','b')": "enum", "set('a','b')": "set", "enum('','b')": "enum"}
    cases = (("enum('a','b')", "b", 2), ("enum('a','b')", "", 0), ("set('a','b')", "a,b", 3))
    for kind, name, number in (*cases, ("set('a','b')", "", 0), ("enum('','b')", "b", 2)):
        of = replace(PLAIN, columns=(id_, replace(v, type=MySQLType.parse(kind))))
        columns = [
            {"name": "id", "dataType": {"mysqlType": "bigint"}},
            {"name": "v", "dataType": {"mysqlType": kinds[kind]}},
        ]
        right = checksum_of({"id": "1", "v": str(number)}, columns)
        rows = numbered(
            [
                Row(op="INSERT", ts=10, data={"id": "1", "v": name}, checksum=told, is_avro=True)
                for told in (right, right + 1)
            ]
        )
        said = errors(resolved(rows[:1], of, rules=STRICT))
        assert (kind, name, said) == (kind, name, {})
        assert [*errors(resolved(rows[1:], of, rules=STRICT))] == [1]
    of = replace(PLAIN, columns=(id_, replace(v, type=MySQLType.parse("enum('','b')"))))
    odd = Row(op="INSERT", ts=10, data={"id": "1", "v": ""}, checksum=1, is_avro=True)
    assert not errors(resolved([odd], of, rules=STRICT))


def recorded(variant: str) -> dict[tuple[str, int, int], set[int]]:
    """The checksums of a recording's rows of `alltypes`, by version, op and commit-ts."""
    blocks = [
        block
        for sent in wire.partitions(variant).values()
        for block in decoder_of("simple")(chunk([m.value for m in sent]), EveryTable(None))
    ]
    schemas = {
        (told.name, told.version): TableSchema.from_json(told.definition)
        for block in blocks
        for told in tables_told(block)
    }
    found: dict[tuple[str, int, int], set[int]] = {}
    for block in blocks:
        if block.kind is Kind.ROW and block.name.table == "alltypes":
            rows, version = block.table(), version_of(block.table().schema)
            of = schemas[block.name, version or 0]
            data = rows["data"].combine_chunks()
            types = {column.name: column.type for column in of.columns}
            columns = [(types[n], data.field(n)) for n in of.by_id if n in data.type.names]
            for op, ts, told in zip(
                rows["op"].to_pylist(),
                rows["commit_ts"].to_pylist(),
                row_checksums(columns, RULES).tolist(),
                strict=True,
            ):
                found.setdefault((str(version), op, ts), set()).add(told)
    return found


def recorded_avro() -> dict[tuple[int, int], set[int]]:
    """The same of avro, in the modes that TiCDC asks for; by op and commit-ts."""
    schemas = wire.schemas("avro-string-modes")
    of = next(
        TableSchema.from_json(told.definition)
        for m in wire.messages("simple-json")
        for block in decoder_of("simple")(chunk([m.value]), {})
        for told in tables_told(block)
        if told.name.table == "alltypes"
    )
    types = {column.name: column.type for column in of.columns}
    found: dict[tuple[int, int], set[int]] = {}
    for sent in wire.partitions("avro-string-modes").values():
        values = [with_key(m.key, m.value) for m in sent]
        for block in decode_avro(chunk(values), EveryTable(None), schemas=schemas):
            if block.kind is not Kind.ROW or block.name.table != "alltypes" or block.token:
                continue
            rows = block.table()
            data = with_names(rows.to_batches()[0], of.by_id)["data"]
            if rows.num_columns != 5 or {*data.type.names} - {*of.by_id} or len(data.type) == 1:
                continue
            columns = [(types[n], data.field(n)) for n in of.by_id if n in data.type.names]
            columns, is_told = of_names(columns)
            numbers = np.where(is_told, row_checksums(columns, RULES), UNTOLD).tolist()
            ops, times = (rows[name].to_pylist() for name in ("op", "commit_ts"))
            for op, ts, number in zip(ops, times, numbers, strict=True):
                found.setdefault((op, ts), set()).add(number)
    return found


def test_rows_of_avro_have_the_same() -> None:
    texts = {(op, ts): told for (_, op, ts), told in recorded("simple-json").items()}
    avro = recorded_avro()
    both = texts.keys() & avro.keys()
    both = [at for at in both if UNTOLD not in avro[at]]  # one row has the ENUM's member ''
    assert len(both) > 10
    assert {at: texts[at] for at in both} == {at: avro[at] for at in both}


def test_rows_of_both_encodings_have_one_checksum() -> None:
    """Typed cells and texts of every type, as TiCDC's encoders wrote them."""
    texts, typed = recorded("simple-json"), recorded("simple-avro")
    both = texts.keys() & typed.keys()
    assert len(both) > 25
    assert {at: texts[at] for at in both} == {at: typed[at] for at in both}
