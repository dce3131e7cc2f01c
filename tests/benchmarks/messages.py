"""Changes as the bytes that TiCDC writes: canal-json, content-compatible, with the TiDB
extension.

Field order, number texts and the random key order of ``mysqlType`` (a Go map) are those of the
recorded bytes in ``tests/data/wire``. Content-compatible: ``mysqlType`` has the full type text
and ``old`` only the changed columns, which makes about 880 bytes a message.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.benchmarks.workload import DELETE, INSERT, MYSQL_TYPES, SCHEMA, UPDATE, rows

FIRST_TS_MS = 1_795_000_000_000  # the feed's own clock; it never meets a real one
CHANGES_PER_MS = 10  # of the feed's clock: 10,000 changes a second
TSO_LOGICAL_BITS = 18
_SQL_TYPES = {"id": -5, "cust": -5, "amount": 3, "name": 12, "ts": 93, "status": 12, "note": 12,
              "flag": -6, "x": 8, "ver": 4}  # fmt: skip
_CHANGING = ("amount", "ts", "status", "note", "x", "ver")  # the others depend on the key alone
_TYPE_ORDERS = 16
_QUARTERS = ("", ".25", ".5", ".75")
_OP_NAMES = {INSERT: "INSERT", UPDATE: "UPDATE", DELETE: "DELETE"}


def tso(at_ms: int, logical: int = 0) -> int:
    """A TiDB timestamp."""
    return at_ms << TSO_LOGICAL_BITS | logical


def commit_ts(first: int, count: int) -> np.ndarray:
    """The commit-ts of changes from ``first`` on: a transaction each, ten in a millisecond."""
    n = np.arange(first, first + count, dtype=np.int64)
    return ((FIRST_TS_MS + n // CHANGES_PER_MS) << TSO_LOGICAL_BITS) + n % CHANGES_PER_MS + 1


def watermark_after(count: int) -> int:
    """The first TSO above changes 0 … count - 1 and at or below change ``count``'s millisecond."""
    assert count % CHANGES_PER_MS == 0, "a watermark between two changes of one millisecond"
    return tso(FIRST_TS_MS + count // CHANGES_PER_MS)


def watermark(ts: int) -> bytes:
    """A TIDB_WATERMARK message."""
    return _message("", "", "TIDB_WATERMARK", "", is_ddl=False, tidb={"watermarkTs": ts}, at=ts)


def ddl(schema: str, table: str, kind: str, query: str, ts: int) -> bytes:
    """A DDL message (TiCDC sends it to partition 0)."""
    return _message(schema, table, kind, query, is_ddl=True, tidb={"commitTs": ts}, at=ts)


def create_table(schema: str, table: str, ts: int) -> bytes:
    """CREATE TABLE as TiCDC rewrites it."""
    columns = ",".join(
        f"`{name}` {kind.upper()}{' NOT NULL' if name == 'id' else ''}"
        for name, kind in MYSQL_TYPES.items()
    )
    query = f"CREATE TABLE `{schema}`.`{table}` ({columns},PRIMARY KEY(`id`))"
    return ddl(schema, table, "CREATE", query, ts)


def _message(
    schema: str, table: str, kind: str, query: str, *, is_ddl: bool, tidb: dict[str, int], at: int
) -> bytes:
    body = {
        "id": 0, "database": schema, "table": table, "pkNames": None, "isDdl": is_ddl, "type": kind,
        "es": at >> TSO_LOGICAL_BITS, "ts": (at >> TSO_LOGICAL_BITS) + 40, "sql": query,
        "sqlType": None, "mysqlType": None, "data": None, "old": None, "_tidb": tidb,
    }  # fmt: skip
    return json.dumps(body, separators=(",", ":")).encode()


def _texts(table: pa.Table) -> dict[str, pa.Array]:
    """Every column as the text that TiDB prints."""
    texts = {}
    for name in SCHEMA.names:
        column = table.column(name).combine_chunks()
        if name == "x":  # an exact quarter, printed as Go's 'f' with the fewest digits
            value = column.to_numpy()
            whole = value.astype(np.int64)
            fraction = ((value - whole) * 4).astype(np.int32)
            parts = pa.array(_QUARTERS).take(pa.array(fraction))
            texts[name] = pc.binary_join_element_wise(pa.array(whole).cast(pa.string()), parts, "")
        else:
            texts[name] = column.cast(pa.string())
    return texts


def _object(texts: dict[str, pa.Array], names: tuple[str, ...]) -> list[pa.Array | str]:
    pieces: list[pa.Array | str] = ["{"]
    for n, name in enumerate(names):
        pieces += [f'{"," if n else ""}"{name}":"', texts[name], '"']
    return [*pieces, "}"]


def _heads(schema: str, table: pa.Array | str, kind: str) -> list[pa.Array | str]:
    return [f'{{"id":0,"database":"{schema}","table":"', table,
            f'","pkNames":["id"],"isDdl":false,"type":"{kind}","es":']  # fmt: skip


def _type_texts() -> pa.Array:
    rng = np.random.default_rng(3)
    names = list(MYSQL_TYPES)
    texts = []
    for _ in range(_TYPE_ORDERS):
        order = [names[n] for n in rng.permutation(len(names))]
        shuffled = {name: MYSQL_TYPES[name] for name in order}
        texts.append(json.dumps(shuffled, separators=(",", ":")))
    return pa.array(texts)


def encode(
    ids: np.ndarray,
    vers: np.ndarray,
    ops: np.ndarray,
    commits: np.ndarray,
    *,
    schema: str = "shop",
    tables: pa.Array | str = "orders",
) -> pa.Array:
    """The messages of some changes, in their order, as one Arrow binary array."""
    data, old = _texts(rows(ids, vers)), _texts(rows(ids, np.maximum(vers - 1, 0)))
    at = pa.array(commits >> TSO_LOGICAL_BITS)
    common = {
        "es": at.cast(pa.string()),
        "ts": pc.add(at, 40).cast(pa.string()),
        "types": _type_texts().take(pa.array((ids * 7 + vers) % _TYPE_ORDERS)),
        "commit": pa.array(commits).cast(pa.string()),
    }
    sql_type = json.dumps(_SQL_TYPES, separators=(",", ":"))
    by_op = []
    for op, kind in _OP_NAMES.items():
        before = _object(old, _CHANGING) if op == UPDATE else None
        pieces = [
            *_heads(schema, tables, kind), common["es"], ',"ts":', common["ts"],
            f',"sql":"","sqlType":{sql_type},"mysqlType":', common["types"], ',"old":',
            *(["[", *before, "]"] if before else ["null"]),
            ',"data":[', *_object(data, tuple(SCHEMA.names)), '],"_tidb":{"commitTs":',
            common["commit"], "}}",
        ]  # fmt: skip
        chosen = pa.array(np.flatnonzero(ops == op))
        taken = [piece if isinstance(piece, str) else piece.take(chosen) for piece in pieces]
        by_op.append((chosen, _join(taken)))
    order = np.argsort(np.concatenate([chosen.to_numpy() for chosen, _ in by_op]), kind="stable")
    return pa.concat_arrays([text for _, text in by_op]).take(pa.array(order)).cast(pa.binary())


def _join(pieces: list[pa.Array | str]) -> pa.Array:
    """Neighbouring texts become one scalar first: fewer pieces to join for each row."""
    merged: list[pa.Array | str] = []
    for piece in pieces:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        else:
            merged.append(piece)
    return pc.binary_join_element_wise(*merged, "")
