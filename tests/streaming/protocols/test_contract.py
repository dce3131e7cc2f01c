import pickle
from dataclasses import fields

import pyarrow as pa

from coordination.model import TableName
from streaming.protocols.contract import (
    BAD_BODY,
    Block,
    Cells,
    Kind,
    Order,
    cells_of,
    ipc,
    key_names,
    order_of,
    wire_metadata,
    wire_types,
)


def test_blocks_travel_whole():
    body = ipc(BAD_BODY.empty_table())
    name = TableName("s", "n")
    bad = Block(kind=Kind.BAD, part="t/3", first=7, last=9, message_bytes=8, body=body)
    row = Block(kind=Kind.ROW, part="t/0", name=name, min_ts=1, max_ts=2)
    for block in (bad, row):
        arrived = pickle.loads(pickle.dumps(block))
        assert all(getattr(arrived, f.name) == getattr(block, f.name) for f in fields(Block))
    assert bad.table().schema == BAD_BODY


def test_what_the_wire_says_of_its_columns_is_kept_in_order():
    metadata = wire_metadata(
        [("b", "int"), ("a", "varchar(9)")], ["b"], order=Order.PLACE, cells=Cells.TEXT
    )
    schema = pa.schema([("op", pa.int8())], metadata=metadata)
    assert list(wire_types(schema).items()) == [("b", "int"), ("a", "varchar(9)")]
    assert key_names(schema) == ("b",)
    assert (order_of(schema), cells_of(schema)) == (Order.PLACE, Cells.TEXT)
    keyless = wire_metadata([], None, order=Order.NET, cells=Cells.TYPED)
    assert key_names(pa.schema([], metadata=keyless)) is None
