import pyarrow as pa

from coordination.model import TableName
from streaming.protocols.contract import (
    BAD_BODY,
    Block,
    Kind,
    from_table,
    ipc,
    key_names,
    to_batch,
    wire_metadata,
    wire_types,
)


def test_blocks_travel_whole():
    body = ipc(BAD_BODY.empty_table())
    blocks = [
        Block(
            kind=Kind.BAD,
            topic="t",
            partition=3,
            rows=0,
            first=7,
            last=9,
            message_bytes=8,
            body=body,
        ),
        Block(kind=Kind.ROW, topic="t", partition=0, name=TableName("s", "n"), min_ts=1, max_ts=2),
    ]
    bad, row = from_table(pa.Table.from_batches([to_batch(blocks)]))
    assert bad.table().schema == BAD_BODY
    assert (bad.kind, bad.partition, bad.first, bad.last, bad.message_bytes) == (
        Kind.BAD,
        3,
        7,
        9,
        8,
    )
    assert bad.min_ts is None
    assert (row.kind, row.name, row.min_ts, row.max_ts) == (Kind.ROW, TableName("s", "n"), 1, 2)
    assert row.body is None


def test_a_body_that_arrives_is_no_copy():
    blocks = [
        Block(kind=Kind.BAD, topic="t", partition=0, first=n, body=b"%d" % n * 9) for n in (1, 2)
    ]
    batch = to_batch(blocks)
    table = pa.Table.from_batches([batch, batch[:0], batch[1:]])
    memory = batch.column("body").buffers()[2]
    for block in from_table(table):
        assert isinstance(block.body, pa.Buffer)
        assert block.body.to_pybytes() == b"%d" % block.first * 9
        assert memory.address <= block.body.address < memory.address + memory.size
    assert [block.first for block in from_table(table)] == [1, 2, 2]


def test_what_the_wire_says_of_its_columns_is_kept_in_order():
    metadata = wire_metadata([("b", "int"), ("a", "varchar(9)")], ["b"])
    schema = pa.schema([("op", pa.int8())], metadata=metadata)
    assert list(wire_types(schema).items()) == [("b", "int"), ("a", "varchar(9)")]
    assert key_names(schema) == ("b",)
    assert key_names(pa.schema([], metadata=wire_metadata([], None))) is None
