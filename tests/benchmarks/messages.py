"""Changes as the bytes that TiCDC writes: canal-json, content-compatible, with the TiDB
extension.

Field order, number texts and the random key order of ``mysqlType`` (a Go map) are those of the
recorded bytes in ``tests/data/wire``. Content-compatible: ``mysqlType`` has the full type text
and ``old`` only the changed columns, which makes 820 bytes
an INSERT or DELETE and 1,060 an UPDATE. Templates with places in them: as fast as a producer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from tests.benchmarks.rows import CHANGING, MYSQL_TYPES, SCHEMA, WIDTHS, Cells, digits
from tests.benchmarks.workload import DELETE, INSERT, UPDATE

FIRST_TS_MS = 1_795_000_000_000  # the feed's own clock; it never meets a real one
CHANGES_PER_MS = 10  # of the feed's clock: 10,000 changes a second
TSO_LOGICAL_BITS = 18
_SQL_TYPES = {"id": -5, "cust": -5, "amount": 3, "name": 12, "ts": 93, "status": 12, "note": 12,
              "flag": -6, "x": 8, "ver": 4}  # fmt: skip
_TYPE_ORDERS = 16
_TIGHT = (",", ":")
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
    """The DDL message of a table's beginning."""
    return ddl(schema, table, "CREATE", create_text(schema, table), ts)


def create_text(schema: str, table: str) -> str:
    """CREATE TABLE as TiCDC rewrites it."""
    columns = ",".join(
        f"`{name}` {kind.upper()}{' NOT NULL' if name == 'id' else ''}"
        for name, kind in MYSQL_TYPES.items()
    )
    return f"CREATE TABLE `{schema}`.`{table}` ({columns},PRIMARY KEY(`id`))"


def _message(
    schema: str, table: str, kind: str, query: str, *, is_ddl: bool, tidb: dict[str, int], at: int
) -> bytes:
    body = {
        "id": 0, "database": schema, "table": table, "pkNames": None, "isDdl": is_ddl, "type": kind,
        "es": at >> TSO_LOGICAL_BITS, "ts": (at >> TSO_LOGICAL_BITS) + 40, "sql": query,
        "sqlType": None, "mysqlType": None, "data": None, "old": None, "_tidb": tidb,
    }  # fmt: skip
    return json.dumps(body, separators=_TIGHT).encode()


@dataclass(frozen=True, slots=True)
class _Template:
    """The messages of one kind: their bytes with places in them, once for every type order."""

    blanks: np.ndarray
    places: np.dtype[np.void]

    @classmethod
    def of(cls, kind: int, schema: str, table_bytes: int) -> _Template:
        head = [f'{{"id":0,"database":"{schema}","table":"', ("table", table_bytes),
                f'","pkNames":["id"],"isDdl":false,"type":"{_OP_NAMES[kind]}","es":',
                ("es", 13), ',"ts":', ("ts", 13),
                f',"sql":"","sqlType":{json.dumps(_SQL_TYPES, separators=_TIGHT)},"mysqlType":',
                ("mysqlType", len(_type_texts()[0])), ',"old":']  # fmt: skip
        old = ["[", *_object("old", CHANGING), "]"] if kind == UPDATE else ["null"]
        data = [',"data":[', *_object("data", tuple(SCHEMA.names)), '],"_tidb":{"commitTs":']
        return cls._laid_out([*head, *old, *data, ("commitTs", 18), "}}"])

    @classmethod
    def _laid_out(cls, pieces: Sequence[str | tuple[str, int]]) -> _Template:
        text, places = b"", {}
        for piece in pieces:
            if isinstance(piece, str):
                text += piece.encode()
            else:
                name, width = piece
                places[name] = (f"S{width}", len(text))
                text += b" " * width
        dtype = np.dtype(
            {
                "names": list(places),
                "formats": [form for form, _ in places.values()],
                "offsets": [offset for _, offset in places.values()],
                "itemsize": len(text),
            }
        )
        blanks = np.full(_TYPE_ORDERS, text)  # bytes: numpy copies only the fields of a record
        blanks.view(dtype)["mysqlType"] = _type_texts()
        return cls(blanks, dtype)

    def filled(self, order: np.ndarray, cells: dict[str, np.ndarray]) -> list[bytes]:
        """A message for each of ``order`` (which type text it has)."""
        out = self.blanks[order]
        places = out.view(self.places)
        for name, texts in cells.items():
            places[name] = texts
        messages: list[bytes] = out.tolist()
        return messages


def _object(prefix: str, names: tuple[str, ...]) -> list[str | tuple[str, int]]:
    pieces: list[str | tuple[str, int]] = []
    for n, name in enumerate(names):
        pieces += [f'{"," if n else "{"}"{name}":"', (f"{prefix}.{name}", WIDTHS[name]), '"']
    return [*pieces, "}"]


@cache
def _type_texts() -> np.ndarray:
    rng = np.random.default_rng(3)
    names = list(MYSQL_TYPES)
    texts = []
    for _ in range(_TYPE_ORDERS):
        order = [names[n] for n in rng.permutation(len(names))]
        shuffled = {name: MYSQL_TYPES[name] for name in order}
        texts.append(json.dumps(shuffled, separators=_TIGHT).encode())
    return np.array(texts)


@cache
def _templates(schema: str, table_bytes: int) -> dict[int, _Template]:
    return {kind: _Template.of(kind, schema, table_bytes) for kind in _OP_NAMES}


def encode(
    ids: np.ndarray,
    vers: np.ndarray,
    ops: np.ndarray,
    commits: np.ndarray,
    *,
    schema: str,
    tables: np.ndarray,
) -> np.ndarray:
    """The messages of some changes, in their order, as an array of ``bytes``. ``tables``: the
    name of each one's table, all of one width."""
    out = np.empty(len(ids), dtype=object)
    for kind, template in _templates(schema, tables.dtype.itemsize).items():
        chosen = np.flatnonzero(ops == kind)
        if not len(chosen):
            continue
        key, ver, commit = ids[chosen], vers[chosen], commits[chosen]
        at = commit >> TSO_LOGICAL_BITS
        new = Cells(key, ver)
        cells = {
            "table": tables[chosen],
            "es": digits(at, 13),
            "ts": digits(at + 40, 13),
            "commitTs": digits(commit, 18),
            **{f"data.{name}": new.text(name) for name in SCHEMA.names},
        }
        if kind == UPDATE:
            old = Cells(key, ver - 1)
            cells |= {f"old.{name}": old.text(name) for name in CHANGING}
        out[chosen] = template.filled((key * 7 + ver) % _TYPE_ORDERS, cells)
    return out
