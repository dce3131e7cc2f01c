"""What a row says, as Arrow and as the texts that TiDB prints: a pure function of ``(id, ver)``.

Every text of a column has the same width (keys begin at ``FIRST_KEY``, versions are printed from
``FIRST_VER``), so that a message is a template with places in it: numpy fills a million messages
in seconds. Contents are well mixed, so files and wire compress as real ones do.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa

SCHEMA = pa.schema(  # nullable: Spark refuses a NOT NULL column in a table that delta-rs made
    [
        ("id", pa.int64()),
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
    "note": "varchar(128)",
    "flag": "tinyint(1)",
    "x": "double",
    "ver": "int(11)",
}
CHANGING = ("amount", "ts", "status", "note", "x", "ver")  # the others depend on the key alone
WIDTHS = {"id": 10, "cust": 5, "amount": 8, "name": 17, "ts": 26, "status": 4, "note": 128,
          "flag": 1, "x": 9, "ver": 4}  # fmt: skip
FIRST_KEY = 1_000_000_000
FIRST_VER = 1_000
LAST_VER = 8_999

_FIRST = ("Adele", "Boris", "Çeli", "Diego", "Émil", "Finja", "Gülo", "Haoyu")  # 5 bytes each
_LAST = ("Andersen", "Bergmann", "Fischers", "Hoffmann", "Lindberg", "Müllers", "Steinway",
         "Wang 王")  # fmt: skip
_STATUS = ("open", "paid", "sent", "back", "void")
_NOTE_PIECES, _NOTE_PIECE_BYTES, _NOTE_POOL = 8, 16, 128
_FIRST_DAY, _DAYS, _DAY_S = np.datetime64("2026-01-01"), 336, 86_400

Texts = np.ndarray  # of dtype S<width>


def mix(ids: np.ndarray, vers: np.ndarray | int) -> np.ndarray:
    """splitmix64 of (id, ver): 64 well mixed bits."""
    with np.errstate(over="ignore"):
        z = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z += np.asarray(vers).astype(np.uint64) * np.uint64(0xD1B54A32D192ED03)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


@cache
def _names() -> Texts:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    every = [f"{a} {b}. {c}" for a in _FIRST for b in letters for c in _LAST]
    return np.array([name.encode() for name in every], dtype=f"S{WIDTHS['name']}")


@cache
def _note_pool() -> np.ndarray:
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz 01234", dtype=np.uint8)
    codes = np.random.default_rng(7).integers(0, len(letters), (_NOTE_POOL, _NOTE_PIECE_BYTES))
    pool = letters[codes]
    pool[:, -1] = ord(".")  # no blanks at the end: VARCHAR keeps them, people's eyes do not
    return pool.view(f"S{_NOTE_PIECE_BYTES}")[:, 0]


@cache
def _days() -> Texts:
    return np.datetime_as_string(_FIRST_DAY + np.arange(_DAYS)).astype("S10")


@cache
def _clock() -> Texts:
    texts = [f" {s // 3600:02}:{s // 60 % 60:02}:{s % 60:02}." for s in range(_DAY_S)]
    return np.array(texts, dtype="S10")


@cache
def _four_digits() -> np.ndarray:
    return np.array([f"{n:04}" for n in range(10_000)], dtype="S4").view(np.uint8).reshape(-1, 4)


def digits(values: np.ndarray, width: int) -> Texts:
    """Numbers of at most ``width`` digits, zeros before them."""
    out = np.empty((len(values), -(-width // 4) * 4), dtype=np.uint8)
    rest = values.astype(np.int64)
    for end in range(out.shape[1], 0, -4):
        rest, group = np.divmod(rest, 10_000)
        out[:, end - 4 : end] = _four_digits()[group]
    return np.ascontiguousarray(out[:, out.shape[1] - width :]).view(f"S{width}")[:, 0]


def _joined(*parts: Texts) -> Texts:
    chars = [np.ascontiguousarray(p).view(np.uint8).reshape(len(p), -1) for p in parts]
    whole = np.concatenate(chars, axis=1)
    return whole.view(f"S{whole.shape[1]}")[:, 0]


class Cells:
    """The rows with these keys and versions, column by column."""

    def __init__(self, ids: np.ndarray, vers: np.ndarray) -> None:
        assert vers.max(initial=0) <= LAST_VER - FIRST_VER, "a version of five digits"
        self._ids, self._vers = ids.astype(np.int64), vers.astype(np.int32)
        self._by_row, self._by_ver = mix(ids, 0), mix(ids, vers + 1)

    def __len__(self) -> int:
        return len(self._ids)

    def _part(self, source: np.ndarray, shift: int, size: int) -> np.ndarray:
        return ((source >> np.uint64(shift)) % np.uint64(size)).astype(np.int64)

    def text(self, column: str) -> Texts:
        """As TiDB prints them."""
        if column == "amount":
            cents = self._cents()
            return _joined(
                digits(cents // 100, 5), np.full(len(self), b"."), digits(cents % 100, 2)
            )
        if column == "ts":
            day, second, micro = self._moment()
            return _joined(_days()[day], _clock()[second], digits(micro, 6))
        if column == "x":
            whole, is_upper = self._quarters()
            return _joined(digits(whole, 6), np.array([b".25", b".75"])[is_upper])
        if column in ("name", "status", "note"):
            return self._chars(column)
        return digits(self._integer(column), WIDTHS[column])

    def arrow(self) -> pa.Table:
        """In the types of the target table."""
        cents = np.zeros((len(self), 2), dtype=np.int64)
        cents[:, 0] = self._cents()
        day, second, micro = self._moment()
        start = _FIRST_DAY.astype("datetime64[us]").astype(np.int64)
        whole, is_upper = self._quarters()
        columns = {
            "amount": pa.Array.from_buffers(
                pa.decimal128(18, 2), len(self), [None, pa.py_buffer(cents)]
            ),
            "ts": pa.array(start + (day * _DAY_S + second) * 1_000_000 + micro).view(
                pa.timestamp("us")
            ),
            "x": pa.array(whole + 0.25 + 0.5 * is_upper),
            **{name: strings_of(self._chars(name)) for name in ("name", "status", "note")},
        }
        return pa.table(
            [
                columns[f.name] if f.name in columns else pa.array(self._integer(f.name), f.type)
                for f in SCHEMA
            ],
            schema=SCHEMA,
        )

    def _integer(self, column: str) -> np.ndarray:
        match column:
            case "id":
                return self._ids + FIRST_KEY
            case "cust":
                return 10_000 + self._part(self._by_row, 0, 90_000)
            case "flag":
                return self._part(self._by_row, 20, 2)
        assert column == "ver"
        return self._vers.astype(np.int64) + FIRST_VER

    def _cents(self) -> np.ndarray:
        return 1_000_000 + self._part(self._by_ver, 0, 9_000_000)

    def _moment(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return (
            self._part(self._by_ver, 40, _DAYS),
            self._part(self._by_ver, 20, _DAY_S),
            self._part(self._by_ver, 3, 1_000_000),
        )

    def _quarters(self) -> tuple[np.ndarray, np.ndarray]:
        return 100_000 + self._part(self._by_ver, 13, 900_000), self._part(self._by_ver, 50, 2)

    def _chars(self, column: str) -> Texts:
        if column == "name":
            return _names()[self._part(self._by_row, 21, len(_names()))]
        if column == "status":
            return np.array(_STATUS, dtype="S4")[self._part(self._by_ver, 0, len(_STATUS))]
        index = np.empty((len(self), _NOTE_PIECES), dtype=np.int64)
        for n in range(_NOTE_PIECES):
            index[:, n] = self._part(self._by_ver, 8 * n, _NOTE_POOL)
        return _note_pool()[index].view(f"S{WIDTHS['note']}")[:, 0]


def strings_of(chars: Texts) -> pa.StringArray:
    """Texts of one width as Arrow strings."""
    width = chars.dtype.itemsize
    offsets = np.arange(len(chars) + 1, dtype=np.int32) * width
    data = np.ascontiguousarray(chars).view(np.uint8)
    return pa.StringArray.from_buffers(len(chars), pa.py_buffer(offsets), pa.py_buffer(data))
