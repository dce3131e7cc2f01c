"""The changes that every contender reads: who changes which row, and what each row says.

A row's content is a pure function of ``(id, ver)``: so the state that any prefix of the changes
leads to is an array ``id -> ver``, and every cell of a table can be checked without keeping a
copy of it. Everything is vectorised over numpy and Arrow but the choice of live keys, which is
sequential by nature.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SCHEMA = pa.schema(
    [
        (
            "id",
            pa.int64(),
        ),  # nullable: Spark refuses a NOT NULL column in a table that delta-rs made
        ("cust", pa.int64()),
        ("amount", pa.decimal128(18, 2)),
        ("name", pa.string()),
        ("ts", pa.timestamp("us")),
        ("status", pa.string()),
        ("note", pa.string()),
        ("flag", pa.int8()),
        ("x", pa.float64()),
        ("ver", pa.int32()),
    ]
)
MYSQL_TYPES = {  # with content-compatible=true, as TiCDC prints them
    "id": "bigint(20)",
    "cust": "bigint(20)",
    "amount": "decimal(18,2)",
    "name": "varchar(64)",
    "ts": "datetime(6)",
    "status": "varchar(16)",
    "note": "varchar(96)",
    "flag": "tinyint(1)",
    "x": "double",
    "ver": "int(11)",
}
INSERT, UPDATE, DELETE = 0, 1, 2
DEAD = -1  # in a state: no such row
SHARES = (0.40, 0.55, 0.05)
RECENT_SHARE, RECENT_PART = 0.9, 0.1  # 90 % of updates and deletes on the newest 10 % of keys

_FIRST = [f"{f}{m}" for f in ("Ada", "Bo", "Çelik", "Dana", "Émile", "Finn", "Gül", "Hao") for m in
          ("", " A.", " B.", " K.", " Li", " M.", " van", " de")]  # fmt: skip
_LAST = [f"{a}{b}" for a in ("Ander", "Berg", "Fisch", "Hoff", "Lind", "Müller", "Stein", "王")
         for b in ("", "son", "er", "mann", "qvist", "sen", "haus", "dottir")]  # fmt: skip
_STATUS = ("new", "paid", "packed", "shipped", "returned")
_NOTE_PIECES, _NOTE_PIECE_BYTES, _NOTE_POOL = 6, 16, 1024  # Parquet: about 75 bytes a row


def _mix(ids: np.ndarray, vers: np.ndarray | int) -> np.ndarray:
    """splitmix64 of (id, ver): 64 well mixed bits."""
    with np.errstate(over="ignore"):
        z = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z += np.asarray(vers).astype(np.uint64) * np.uint64(0xD1B54A32D192ED03)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


@cache
def _note_pool() -> np.ndarray:
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz 01234", dtype=np.uint8)
    codes = np.random.default_rng(7).integers(0, len(letters), (_NOTE_POOL, _NOTE_PIECE_BYTES))
    pool = letters[codes]
    pool[:, -1] = ord(".")  # no blanks at the end: VARCHAR keeps them, people's eyes do not
    return pool


def _fixed_width_strings(chars: np.ndarray) -> pa.StringArray:
    count, width = chars.shape
    offsets = np.arange(count + 1, dtype=np.int32) * width
    data = np.ascontiguousarray(chars)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(data))


def _pick(choices: tuple[str, ...] | list[str], index: np.ndarray) -> pa.Array:
    return pa.array(choices).take(pa.array(index.astype(np.int32)))


def rows(ids: np.ndarray, vers: np.ndarray) -> pa.Table:
    """The rows with these keys and versions, in the types of the target table."""
    by_row, by_ver = _mix(ids, 0), _mix(ids, vers + 1)
    cents = np.zeros((len(ids), 2), dtype=np.int64)
    cents[:, 0] = by_ver % np.uint64(10_000_000)
    pieces = [(by_ver >> np.uint64(9 * n)) % np.uint64(_NOTE_POOL) for n in range(_NOTE_PIECES)]
    note = _note_pool()[np.stack(pieces, axis=1).astype(np.int32)].reshape(len(ids), -1)
    micros = np.int64(1_767_225_600_000_000) + (by_ver % np.uint64(30_000_000_000_000)).astype(
        np.int64
    )
    name = pc.binary_join_element_wise(
        _pick(_FIRST, by_row % np.uint64(64)),
        _pick(_LAST, (by_row >> np.uint64(8)) % np.uint64(64)),
        " ",
    )
    columns = [
        pa.array(ids.astype(np.int64)),
        pa.array((by_row % np.uint64(100_000)).astype(np.int64)),
        pa.Array.from_buffers(pa.decimal128(18, 2), len(ids), [None, pa.py_buffer(cents)]),
        name,
        pa.array(micros).view(pa.timestamp("us")),
        _pick(_STATUS, by_ver % np.uint64(5)),
        _fixed_width_strings(note),
        pa.array(((by_row >> np.uint64(20)) & np.uint64(1)).astype(np.int8)),
        pa.array((by_ver % np.uint64(4_000_000)).astype(np.float64) / 4),
        pa.array(vers.astype(np.int32)),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """A history over ``base_rows`` rows (ids 1 … base_rows at ver 0), in the order of commit."""

    base_rows: int
    ids: np.ndarray
    vers: np.ndarray  # after the change; of a delete the version that is deleted
    ops: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def counts(self) -> tuple[int, int, int]:
        """Inserts, updates, deletes."""
        inserts, updates, deletes = (int((self.ops == op).sum()) for op in (INSERT, UPDATE, DELETE))
        return inserts, updates, deletes

    def state(self, read: np.ndarray | None = None) -> np.ndarray:
        """``id -> ver`` (index 0 unused, DEAD: no row) after all changes, or the ``read``.

        ``read`` is a mask that for each key holds a prefix of its changes: what a consumer that
        stopped half-way has seen.
        """
        ids, vers, ops = self.ids, self.vers, self.ops
        if read is not None:
            ids, vers, ops = ids[read], vers[read], ops[read]
        highest = max(self.base_rows, int(self.ids.max(initial=0)))
        state = np.full(highest + 1, DEAD, dtype=np.int32)
        state[1 : self.base_rows + 1] = 0
        state[ids] = np.where(ops == DELETE, DEAD, vers)  # numpy: the last assignment stands
        return state


def make_changes(base_rows: int, count: int, *, recent: bool, seed: int = 1) -> Changes:
    """``count`` changes in the issue's mix; updates and deletes hit keys that are alive."""
    rng = np.random.default_rng(seed)
    ops = rng.choice(3, size=count, p=SHARES).astype(np.int8).tolist()
    spots = rng.random(count).tolist()
    near = (rng.random(count) < (RECENT_SHARE if recent else 0.0)).tolist()
    spare = iter(rng.random(count).tolist() * 4)
    vers = [0] * (base_rows + 1 + count)
    out_ids, out_vers, highest = [0] * count, [0] * count, base_rows
    for i, op in enumerate(ops):
        if op == INSERT:
            highest += 1
            out_ids[i] = highest
            continue
        low = int(highest * (1 - RECENT_PART)) if near[i] else 0
        key = low + 1 + int(spots[i] * (highest - low))
        while vers[key] == DEAD:
            key = low + 1 + int(next(spare) * (highest - low))
        out_ids[i] = key
        if op == DELETE:
            out_vers[i], vers[key] = vers[key], DEAD
        else:
            vers[key] = out_vers[i] = vers[key] + 1
    return Changes(
        base_rows=base_rows,
        ids=np.array(out_ids, dtype=np.int64),
        vers=np.array(out_vers, dtype=np.int32),
        ops=np.array(ops, dtype=np.int8),
    )
