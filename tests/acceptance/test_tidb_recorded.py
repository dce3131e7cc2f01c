"""Rows that a TiDB has shown, copied as of their TSO, and TiCDC's messages played on top: at the
end all cells are the TiDB's, in every type and through every DDL.

The texts are those of ``tests/data/wire``: what TiDB's SELECTs gave. Only how a session asks for
them is not TiDB's here; ``test_tidb_handover`` has that, without TiDB's texts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conf.load import load_settings
from coordination.model import TableName, Ts
from sinks.control.changefeeds import Changefeeds
from sinks.types.mysql_type import MySQLType
from streaming.source.dump.cells import cells_of
from streaming.source.dump.copy_tables import CopiedTable
from streaming.source.dump.source_table import SourceColumn, SourceTable
from streaming.spans.copies.moments import Moment
from streaming.spans.copies.settled_copy import CopiedFrom, SettledCopy
from streaming.spans.copies.tidb_copy import TidbCopy
from tests.acceptance.replays import ended, replay
from tests.services import wire
from tests.shop import proof

pytestmark = pytest.mark.acceptance


def text_of(value: Any, of: MySQLType) -> bytes | None:
    """What the text protocol sends for what was recorded, of the columns that a copy selects."""
    if value is None:
        return None
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"]) if "hex" in value else str(value["name"]).encode()
    if of.name == "bit":
        return int(value).to_bytes((of.length or 1) + 7 >> 3, "big")
    if of.name == "float":  # CAST(… AS DOUBLE)
        return repr(float(np.float32(value))).encode()
    return str(value).encode()


def copied(folder: Path, name: str, table: dict[str, Any]) -> CopiedTable:
    columns = tuple(
        SourceColumn(
            name=each["name"],
            type=MySQLType.parse(each["type"]),
            nullable=each["nullable"],
            charset=each.get("charset"),
        )
        for each in table["columns"]
    )
    cells = {}
    for column in columns:
        texts = [text_of(row[column.name], column.type) for row in table["rows"]]
        cells[column.name] = cells_of(pa.array(texts, pa.large_binary()), column.type)
    rows = pa.table(cells)
    path = folder / f"{name}.parquet"
    pq.write_table(rows, path)
    source = SourceTable(
        name=TableName("shop", name),
        columns=columns,
        key=tuple(table["primaryKey"] or ()),
        index="PRIMARY",
        rows=len(rows),
        bytes=1,
    )
    size = path.stat().st_size
    return CopiedTable(table=source, files=(path,), rows=len(rows), bytes=size, position=None)


@pytest.mark.parametrize("label", ["after_load"])
def test_rows_of_a_tidb_and_then_messages_of_ticdc(tmp_path: Path, label: str) -> None:
    warehouse, ts = tmp_path / "lake", wire.state_ts(label)
    state, at = wire._state(label), Moment(0, Ts(ts))
    defined = [
        f"USE shop;\n{each['query']};\n"
        for each in wire._truth()["ddls"]
        if each["type"] == "create table" and each["commitTs"] <= ts
    ]
    tables = [
        CopiedFrom(copied=copied(tmp_path, name, table), begin=at)
        for name, table in state["tables"].items()
        if name != "audit_log"  # it has no key
    ]
    arguments = {
        "source-uri": f"tidb://root@127.0.0.1/?snapshot-ts={ts}",
        "sink-uri": f"delta://{warehouse}",
        "changefeed-id": "messages",
    }
    settings = load_settings(config=None, environment={}, arguments=arguments)
    copy = TidbCopy(settings.changefeed, tmp_path / "staging")
    settled = SettledCopy(
        server="",
        chosen="",
        begin=at,
        end=at,
        pins=(),
        definitions="".join(defined),
        tables=tuple(tables),
    )
    copy._settled = lambda: settled  # type: ignore[method-assign]
    copy.run()
    assert wire.differences(warehouse, label) == []
    (cut,) = proof.ledger(warehouse, "messages")
    assert cut["primary_ts"] == ts

    played = ended(replay(wire.DATA / "canal-json" / "messages.jsonl.gz", warehouse))
    assert played.returncode == 0, played.stderr
    assert wire.differences(warehouse, "final") == []
    row = Changefeeds(str(warehouse)).read("messages")
    assert row is not None
    assert (row.incarnation, row.start_ts, row.state) == (1, ts, "finished")
