"""Each protocol that is read: the same changes, decoded; a bare read of the same messages, and the
nearest reader of another maker, beside it.

CPU-µs of all threads of this process, one way after the other in each round, and the median of the
rounds: so ratios are of one run, and other processes count little. A decoder's result is blocks,
as executors send them: compressed Arrow, by table, with what is bad in it apart. A peer's is dicts
(json, fastavro) or a table of texts (Arrow's readers), and it looks at nothing. Spark's `from_avro`
is a process of its own, behind the rounds: what it takes above a bare read in Spark.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

import pyarrow as pa
import pyarrow.json
from confluent_kafka import Consumer, TopicPartition
from rich.table import Table

from coordination.model import Ts
from streaming.protocols.contract import Block, Kind, Messages, WantedTable, with_key
from streaming.protocols.decoders import ProtocolDecoder
from streaming.source.kafka.consumer import READING, WAIT_S
from streaming.source.kafka.read_ranges import CHUNK_BYTES, CHUNK_MESSAGES
from streaming.source.storage.csv_rows import CsvRows
from streaming.source.storage.json_rows import JsonRows
from streaming.source.storage.slices_task import SliceText
from tests.benchmarks import maxwell_messages as maxwell
from tests.benchmarks import protocol_messages as made
from tests.benchmarks.bench import Bench
from tests.benchmarks.csv_files import read_by_arrow
from tests.benchmarks.from_avro import from_avro_rounds
from tests.benchmarks.printing import grouped, middle, new_table, number
from tests.benchmarks.protocol_messages import NAME, Change, Sent
from tests.benchmarks.workload import DELETE, make_changes

CHANGES: Final = 40_000
ROUNDS: Final = 5
_BASE_ROWS: Final = 100_000
_WANTED: Final = {NAME: WantedTable(above_ts=Ts(0), key=("id",))}
_FAR: Final = 2**62
DECODE, READ, PEER, SPARK = "decode", "read", "peer", "from_avro"
# Of each protocol in Avro: the bytes before it in a message, and its schema.
_FRAMES: Final = {
    "avro": (5, made.AVRO_SCHEMAS[made.VALUE]),
    "simple, Avro": (4, made.simple_avro_schema()),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way through one protocol's messages, once."""

    protocol: str
    way: str
    by: str
    messages: int
    rows: int
    message_bytes: int
    cpu_s: float

    @property
    def a_row(self) -> float:
        """µs."""
        return 1e6 * self.cpu_s / self.rows

    @property
    def a_byte(self) -> float:
        """ns."""
        return 1e9 * self.cpu_s / self.message_bytes


@dataclass(frozen=True, slots=True)
class Aim:
    """How much of another way's time it may take, for a row or for a byte."""

    protocol: str
    most: float
    of: tuple[str, str]  # protocol, way
    unit: str  # a_row, a_byte

    def ratio(self, found: dict[tuple[str, str], list[Way]]) -> float | None:
        """Of the two ways in each round, and of these the median: what slows a round slows both."""
        sides = found.get((self.protocol, DECODE)), found.get(self.of)
        if not sides[0] or not sides[1]:
            return None
        pairs = zip(*sides, strict=True)
        return median(getattr(own, self.unit) / getattr(other, self.unit) for own, other in pairs)

    def cells(self, ratio: float) -> list[str]:
        other = "its peer" if self.of[1] == PEER else self.of[0]
        what = f"{self.protocol} / {other}, {self.unit.replace('_', ' ')}"
        return [what, number(ratio, 2), number(self.most), "yes" if ratio <= self.most else "NO"]


AIMS: Final = (
    Aim("simple", 1.5, (made.CANAL, DECODE), "a_byte"),
    Aim("open-protocol", 1.5, (made.CANAL, DECODE), "a_byte"),
    Aim("debezium", 1.5, (made.CANAL, DECODE), "a_byte"),
    Aim("debezium, no schema", 1.5, (made.CANAL, DECODE), "a_byte"),
    Aim("avro", 1.0, (made.CANAL, DECODE), "a_row"),
    Aim("simple, Avro", 1.0, (made.CANAL, DECODE), "a_row"),
    Aim(made.CSV, 2.0, (made.CSV, PEER), "a_row"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """A protocol's messages and the ways through them. Each returns how many rows it has read."""

    protocol: str
    messages: int
    message_bytes: int
    ways: dict[tuple[str, str], Callable[[], int]]


def run(bench: Bench, results: list[Way]) -> None:
    def work() -> None:
        bench.say(f"protocols: {CHANGES:,} changes in each, {ROUNDS} rounds")
        courses = list(_courses(bench))
        for number_ in range(ROUNDS):
            bench.say(f"protocols: round {number_ + 1}")
            for course in courses:
                results.extend(_once(course))

    bench.attempt("protocols", work)
    bench.attempt("from_avro", lambda: results.extend(_from_avro(bench)))


def _from_avro(bench: Bench) -> Iterator[Way]:
    history = make_changes(_BASE_ROWS, CHANGES, recent=True)
    sent = made.sent_of(history, made.changes_of(history))
    for protocol, (skipped, schema) in _FRAMES.items():
        bench.say(f"protocols: Spark's from_avro, {protocol}")
        values = [each for _, each in sent[protocol] if each[0] != 3]  # a DELETE's commit-ts
        for rows, cpu_s in from_avro_rounds(bench, values, skipped, schema, ROUNDS):
            yield Way(
                protocol=protocol,
                way=SPARK,
                by="Spark's from_avro",
                messages=rows,
                rows=rows,
                message_bytes=sum(map(len, values)) * rows // len(values),
                cpu_s=cpu_s,
            )


def _once(course: Course) -> Iterator[Way]:
    for (way, by), go in course.ways.items():
        gc.collect()
        begun = time.process_time()
        rows = go()
        cpu_s = time.process_time() - begun
        read = course.messages if way == READ else CHANGES
        assert rows == read, f"{course.protocol}, {by}: {rows} instead of {read}"
        yield Way(
            protocol=course.protocol,
            way=way,
            by=by,
            messages=course.messages,
            rows=CHANGES,
            message_bytes=course.message_bytes,
            cpu_s=cpu_s,
        )


def _courses(bench: Bench) -> Iterator[Course]:
    history = make_changes(_BASE_ROWS, CHANGES, recent=True)
    changes = made.changes_of(history)
    topics = {**made.sent_of(history, changes), **maxwell.sent_of(changes)}
    for protocol, sent in topics.items():
        yield _of_topic(bench, protocol, sent, changes)
    for protocol, text in made.files_of(history, changes).items():
        yield _of_file(bench.setting.folder, protocol, text, changes)


def _of_topic(
    bench: Bench, protocol: str, sent: Sequence[Sent], changes: Sequence[Change]
) -> Course:
    topic = "protocol-" + protocol.replace(", ", "-").replace(" ", "-").lower()
    bench.broker.create_topic(topic, partitions=1)
    bench.broker.produce(topic, ((0, key, value) for key, value in sent))
    decoded = of_messages(protocol, sent, changes)
    check(protocol, decoded(), changes)
    by, peer = _peer(protocol)
    ways: dict[tuple[str, str], Callable[[], int]] = {
        (READ, "Kafka's consumer"): lambda: _consumed(bench.broker.bootstrap, topic, len(sent)),
        (DECODE, "Tidelake"): lambda: _rows(decoded()),
    }
    if peer is not None:
        ways[PEER, by] = lambda: peer(sent)
    size = sum(len(key or b"") + len(value) for key, value in sent)
    return Course(protocol=protocol, messages=len(sent), message_bytes=size, ways=ways)


def of_messages(
    protocol: str, sent: Sequence[Sent], changes: Sequence[Change]
) -> Callable[[], list[Block]]:
    """What decodes these."""
    decode = ProtocolDecoder(protocol.partition(",")[0], 0, made.AVRO_SCHEMAS)
    values = [with_key(*each) if decode.reads_keys else each[1] for each in sent]
    chunks = list(_chunks(protocol, values))
    if decode.protocol == "maxwell":
        numbers = pa.array([each.commit_ts for each in changes], pa.int64())
        chunks = [replace(each, commit_ts=numbers.take(each.positions)) for each in chunks]
    return lambda: [block for chunk in chunks for block in decode(chunk, _WANTED)]


def _chunks(part: str, values: Sequence[bytes | None]) -> Iterator[Messages]:
    """As large as an executor reads them."""
    first, held = 0, 0
    for at, value in enumerate(values, 1):
        held += len(value or b"")
        if held >= CHUNK_BYTES or at - first >= CHUNK_MESSAGES or at == len(values):
            yield Messages(
                part=part,
                positions=pa.array(range(first, at), pa.int64()),
                values=pa.array(values[first:at], pa.binary()),
            )
            first, held = at, 0


def _consumed(bootstrap: str, topic: str, count: int) -> int:
    settings = {"bootstrap.servers": bootstrap, "group.id": "protocols"}
    consumer = Consumer({**READING, **settings, "enable.partition.eof": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen = 0
    while seen < count:
        got = consumer.consume(min(count - seen, 16_000), WAIT_S)
        pa.array([message.value() for message in got], pa.binary())
        seen += len(got)
    consumer.close()
    return seen


def _of_file(folder: Path, protocol: str, text: bytes, changes: Sequence[Change]) -> Course:
    path = folder / protocol.replace(" ", "-")
    path.write_bytes(text)
    decoded = of_text(protocol, text)
    check(protocol, decoded(), changes)
    is_csv = protocol == made.CSV
    by, peer = ("Arrow's csv reader", _csv) if is_csv else ("Arrow's JSON reader", _json)
    ways: dict[tuple[str, str], Callable[[], int]] = {
        (READ, "open"): lambda: CHANGES * bool(path.read_bytes()),
        (DECODE, "Tidelake"): lambda: _rows(decoded()),
        (PEER, by): lambda: peer(text),
    }
    return Course(protocol=protocol, messages=CHANGES, message_bytes=len(text), ways=ways)


def of_text(protocol: str, text: bytes) -> Callable[[], list[Block]]:
    """What decodes a file."""
    decode = CsvRows(0) if protocol == made.CSV else JsonRows(ProtocolDecoder(made.CANAL, 0))
    whole = SliceText(
        part="files", text=text, position=0, head=made.CSV_HEAD, is_first=True, is_whole=True
    )
    return lambda: list(decode(whole, _WANTED, most_rows=_FAR))


def _rows(blocks: Sequence[Block]) -> int:
    return sum(block.rows for block in blocks if block.kind is Kind.ROW)


def check(protocol: str, blocks: Sequence[Block], changes: Sequence[Change]) -> None:
    """Each change is there, with its key and its longest text (avro: of a DELETE the key alone)."""
    found = []
    for block in blocks:
        assert block.kind in (Kind.ROW, Kind.STATE, Kind.DONE), f"{protocol}: {block.kind}"
        if block.kind is Kind.ROW:
            for row in block.table().select(["commit_ts", "data"]).to_pylist():
                data = row["data"]
                found.append((row["commit_ts"], str(data["id"]), data.get("note")))
    found.sort()
    assert len(found) == len(changes), f"{protocol}: {len(found)} rows"
    for own, change in zip(found, changes, strict=True):
        is_key = protocol == "avro" and change.op == DELETE
        right = (change.commit_ts, change.row["id"], None if is_key else change.row["note"])
        assert own == right, f"{protocol}: {own} instead of {right}"


Peer = Callable[[Sequence[Sent]], int]


def _peer(protocol: str) -> tuple[str, Peer | None]:
    if "avro" in protocol.lower():
        try:
            avro: Any = importlib.import_module("fastavro")
        except ImportError:
            return "fastavro is not installed", None
        return "fastavro", _fast_simple(avro) if protocol != "avro" else _fast_avro(avro)
    return "json.loads", _frames if protocol == "open-protocol" else _objects


def _objects(sent: Sequence[Sent]) -> int:
    return len([json.loads(value) for _, value in sent])


def _frames(sent: Sequence[Sent]) -> int:
    found = []
    for key, value in sent:
        assert key is not None
        for key_text, text in zip(_framed(key[8:]), _framed(value), strict=True):
            found.append((json.loads(key_text), json.loads(text)))
    return len(found)


def _framed(side: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(side):
        end = at + 8 + int.from_bytes(side[at : at + 8], "big")
        yield side[at + 8 : end]
        at = end


def _fast_avro(avro: Any) -> Peer:
    schemas = {n: avro.parse_schema(json.loads(text)) for n, text in made.AVRO_SCHEMAS.items()}
    read = avro.schemaless_reader

    def peer(sent: Sequence[Sent]) -> int:
        found = []
        for key, value in sent:
            side = value if value[0] == 0 else key  # a DELETE is its key
            assert side is not None
            schema = schemas[int.from_bytes(side[1:5], "big")]
            found.append(read(io.BytesIO(side[5:]), schema, None))
        return len(found)

    return peer


def _fast_simple(avro: Any) -> Peer:
    schema, read = avro.parse_schema(json.loads(made.simple_avro_schema())), avro.schemaless_reader
    return lambda sent: len([read(io.BytesIO(value[4:]), schema, None) for _, value in sent])


def _csv(text: bytes) -> int:
    read_by_arrow(text, CHANGES, fields=made.CSV_HEAD.before + len(made.CSV_HEAD.columns))
    return CHANGES


def _json(text: bytes) -> int:
    options = pa.json.ReadOptions(use_threads=False)
    return int(pa.json.read_json(io.BytesIO(text), options).num_rows)


def tables(results: list[Way]) -> list[Table]:
    table = new_table(
        "Protocols, CPU of one process, medians",
        "protocol", "bytes/row", "rows/message", "read µs/row", "decode µs/message",
        "decode µs/row", "of canal-json", "ns/byte", "of canal-json", "from_avro µs/row",
        "peer µs/row", "contender",
    )  # fmt: skip
    found = grouped(results, lambda way: (way.protocol, way.way))
    canal = found[made.CANAL, DECODE]
    canal_row = middle(canal, lambda way: way.a_row)
    canal_byte = middle(canal, lambda way: way.a_byte)
    for (protocol, way), mine in found.items():
        if way != DECODE:
            continue
        read, peer = found[protocol, READ], found.get((protocol, PEER), [])
        a_row, a_byte = middle(mine, lambda w: w.a_row), middle(mine, lambda w: w.a_byte)
        rows_each = mine[0].rows / mine[0].messages
        table.add_row(
            protocol,
            number(mine[0].message_bytes / mine[0].rows, 0),
            number(rows_each, 0),
            number(middle(read, lambda w: w.a_row), 2),
            number(a_row * rows_each, 2),
            number(a_row, 2),
            number(a_row / canal_row, 2),
            number(a_byte, 2),
            number(a_byte / canal_byte, 2),
            number(middle(found.get((protocol, SPARK), []), lambda w: w.a_row), 2),
            number(middle(peer, lambda w: w.a_row), 2),
            peer[0].by if peer else "",
        )
    aims = new_table("Aims", "ratio", "measured", "at most", "held")
    for aim in AIMS:
        if (ratio := aim.ratio(found)) is not None:
            aims.add_row(*aim.cells(ratio))
    return [table, aims]
