"""The recorded bytes of TiCDC's own encoder (``tests/data/wire``) and the truth beside them.

What surprises in these bytes is told in the README of their source; ``expected.json.gz`` is what
SELECT gave in the TiDB that the changes were executed in.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from tests.services.delta_rows import first_difference, read_rows
from tests.services.kafka_broker import KafkaBroker

DATA = Path(__file__).resolve().parents[1] / "data" / "wire"
CANAL_JSON = "canal-json"
CANAL_JSON_INTERLEAVED = "canal-json-interleaved"
# SHOW COLUMNS does not tell a table's NOT NULL unique key; these are the CREATE TABLE's.
_UNIQUE_KEYS = {"coupon": ("code", "sub"), "coupon_v2": ("code", "sub")}
_MAX_PRECISION = 38
LABELS = (
    "after_load",
    "after_updates",
    "after_first_ddls",
    "after_renames",
    "after_partition_ddls",
    "final",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WireMessage:
    """One Kafka message, in produce order; ``note`` is for people."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedTable:
    """A table at a moment, in the Python values that delta-rs reads from a right target table."""

    name: str
    columns: tuple[str, ...]  # without virtual generated ones
    key: tuple[str, ...] | None  # None: neither primary nor NOT NULL unique key
    rows: tuple[dict[str, Any], ...]
    readers: dict[str, Callable[[Any], Any]]  # column -> from recorded text to that value

    def difference(self, actual: list[dict[str, Any]]) -> str | None:
        """None where ``actual`` has these rows, cell for cell; else the first cell that differs."""
        surplus = {column for row in actual for column in row} - set(self.columns)
        if surplus:
            return f"{self.name}: columns {sorted(surplus)} should not be there"
        difference = first_difference(self.rows, actual, self.key)
        return f"{self.name}: {difference}" if difference else None


@cache
def messages(variant: str) -> tuple[WireMessage, ...]:
    """Everything that was sent, in produce order over all partitions."""
    with gzip.open(DATA / variant / "messages.jsonl.gz", "rt", encoding="utf-8") as lines:
        return tuple(map(_message, lines))


def produce(
    broker: KafkaBroker,
    variant: str,
    *,
    topic: str | None = None,
    where: Callable[[WireMessage], bool] = lambda _message: True,
) -> str:
    """Make a topic of three partitions and send the recorded messages to theirs, in order.

    All go to one topic, ``topic`` or the recorded name, which is returned. ``where`` picks some
    messages only: offsets are then other than the recorded ones.
    """
    name = topic or messages(variant)[0].topic
    broker.create_topic(name, partitions=3)
    chosen = filter(where, messages(variant))
    broker.produce(name, ((message.partition, message.key, message.value) for message in chosen))
    return name


def config(variant: str) -> dict[str, Any]:
    """How TiCDC was configured, and how many messages of each kind it sent."""
    found: dict[str, Any] = json.loads((DATA / variant / "config.json").read_text())
    return found


def claimed(variant: str, folder: Path) -> Path:
    """The files of a variant's claim-check storage, in a folder; which is returned."""
    folder.mkdir()
    with gzip.open(DATA / variant / "claim-check.json.gz", "rt", encoding="utf-8") as text:
        for name, body in json.load(text).items():
            (folder / name).write_text(body, encoding="utf-8")
    return folder


def schemas(variant: str) -> dict[int, str]:
    """The schemas of avro that were registered, by their ids."""
    with gzip.open(DATA / variant / "schemas.json.gz", "rt", encoding="utf-8") as text:
        return {each["id"]: each["schema"] for each in json.load(text)}


def state_ts(label: str) -> int:
    """The watermark right after which ``expected(label)`` was read."""
    return int(_state(label)["asOfTs"])


def expected(label: str) -> dict[str, ExpectedTable]:
    """Table name -> truth at ``after_load``, ``after_updates`` …, by docs/types.md."""
    return {name: _table(name, table) for name, table in _state(label)["tables"].items()}


def shown_rows(label: str, table: str) -> list[dict[str, Any]]:
    """The rows as SELECT shows them: texts, and in dicts bytes and names."""
    rows: list[dict[str, Any]] = _state(label)["tables"][table]["rows"]
    return rows


def shown(label: str) -> dict[str, Any]:
    """Table name -> its ``columns``, ``primaryKey`` and ``rows``, as SELECT shows them."""
    found: dict[str, Any] = _state(label)["tables"]
    return found


def changes() -> list[dict[str, Any]]:
    """Every change of a row: ``table``, ``commitTs`` and ``op`` (insert, update or delete)."""
    found: list[dict[str, Any]] = _truth()["changes"]
    return found


def ddls() -> list[dict[str, Any]]:
    """In their order: ``commitTs``, ``schema``, ``table``, ``tableID``, ``query`` …"""
    found: list[dict[str, Any]] = _truth()["ddls"]
    return found


def differences(
    warehouse: str | Path,
    label: str,
    schema: str = "shop",
    versions: Mapping[str, int] | None = None,
) -> list[str]:
    """One line per table with a key that is not, cell for cell, what ``expected(label)`` says:
    now, or at these versions, by ``schema.table``."""
    tables = (table for table in expected(label).values() if table.key is not None)
    at = versions or {}
    found = (
        t.difference(read_rows(Path(warehouse, schema, t.name), at.get(f"{schema}.{t.name}")))
        for t in tables
    )
    return [line for line in found if line is not None]


def partitions(variant: str) -> dict[int, list[WireMessage]]:
    """The messages by partition, each in its order."""
    found: dict[int, list[WireMessage]] = defaultdict(list)
    for message in messages(variant):
        found[message.partition].append(message)
    return dict(found)


def _message(line: str) -> WireMessage:
    record = json.loads(line)
    assert not record["headers"]
    return WireMessage(
        topic=record["topic"],
        partition=record["partition"],
        offset=record["offset"],
        key=_decoded(record["key_b64"]),
        value=_decoded(record["value_b64"]),
        note=record["note"],
    )


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


@cache
def _truth() -> dict[str, Any]:
    with gzip.open(DATA / "expected.json.gz", "rt", encoding="utf-8") as text:
        return dict(json.load(text))


def _state(label: str) -> dict[str, Any]:
    return next(state for state in _truth()["states"] if state["label"] == label)


def _table(name: str, table: dict[str, Any]) -> ExpectedTable:
    columns = {
        column["name"]: _reader(column["type"])
        for column in table["columns"]
        if "VIRTUAL" not in column.get("extra", "")
    }
    key = table["primaryKey"] or _UNIQUE_KEYS.get(name)
    return ExpectedTable(
        name=name,
        columns=tuple(columns),
        key=tuple(key) if key else None,
        rows=tuple(_rows(table["rows"], columns)),
        readers=columns,
    )


def _rows(
    rows: list[dict[str, Any]], columns: dict[str, Callable[[Any], Any]]
) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield {
            column: None if row[column] is None else read(row[column])
            for column, read in columns.items()
        }


def _reader(mysql_type: str) -> Callable[[Any], Any]:
    """From TiDB's text to the value that a right Delta table gives (docs/types.md)."""
    name, numbers = _parts(mysql_type)
    if name in ("bit", "decimal", "bigint"):
        return _number_reader(name, numbers, unsigned="unsigned" in mysql_type)
    return _READERS.get(name, str)


def _parts(mysql_type: str) -> tuple[str, list[int]]:
    found = re.match(r"(\w+)(?:\(([^)]*)\))?", mysql_type)
    assert found is not None
    return found[1], [int(n) for n in re.findall(r"^\d+|(?<=,)\d+", found[2] or "")]


def _number_reader(name: str, numbers: list[int], *, unsigned: bool) -> Callable[[Any], Any]:
    if name == "decimal":
        return Decimal if numbers[0] <= _MAX_PRECISION else str
    wide = (name == "bigint" and unsigned) or (name == "bit" and numbers[0] == 64)
    return Decimal if wide else int


def _float32(text: str) -> float:
    return float(struct.unpack("f", struct.pack("f", float(text)))[0])


def _date(text: str) -> date | None:
    return None if text.startswith("0000-00-00") else date.fromisoformat(text)


def _datetime(text: str) -> datetime | None:
    return None if text.startswith("0000-00-00") else datetime.fromisoformat(text)


def _timestamp(text: str) -> datetime | None:
    local = _datetime(text)
    return None if local is None else local.replace(tzinfo=UTC)


def _bytes(value: dict[str, str]) -> bytes:
    return bytes.fromhex(value["hex"])


def _name(value: dict[str, str]) -> str:
    return value["name"]


def _vector(text: str) -> list[float]:
    return [_float32(element) for element in text.strip("[]").split(",") if element]


_READERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "year"), int),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _bytes),
    **dict.fromkeys(("enum", "set"), _name),
    "float": _float32,
    "double": float,
    "date": _date,
    "datetime": _datetime,
    "timestamp": _timestamp,
    "vector": _vector,
}
