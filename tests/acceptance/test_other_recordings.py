"""Recordings of the same kinds with other names, values, zones, orders and formats lead to every
recorded state too: DDLs run, and dead letters are none."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from conf.sources.source_parameters import PROTOCOLS
from conf.sources.source_uri import parse_source_uri
from streaming.jobs.on_threads import ThreadsOfProcess
from tests.acceptance.one_process import Lives
from tests.services import wire, wire_storage
from tests.services.other_recordings import shapes
from tests.services.other_recordings.avro_protocol import OtherAvro
from tests.services.other_recordings.json_protocols import sanitized
from tests.services.other_recordings.making import Other, write
from tests.services.other_recordings.names import Names
from tests.services.other_recordings.palettes import ZONES, for_avro, some_names
from tests.services.other_recordings.storage import RECORDED, Csv, OtherFolder
from tests.services.other_recordings.values import Values
from tests.services.schema_registry import SchemaRegistry, serving
from tests.services.wire import WireMessage

pytestmark = pytest.mark.acceptance
MESSAGES = ("canal-json", "open-protocol", "simple-json")
EARLY = (  # what they have ends before the renames
    *("canal-json-claim-check", "canal-json-content-compatible", "canal-json-delete-handle-key"),
    *("open-protocol-claim-check", "open-protocol-updated-columns"),
)
SHAPES = ("twice", "few", "again", "one", "six", "nineties", "batches", "topics", "all")
NINETIES = (788_918_400_000 << 18) - 470620744121057280  # from the recorded TSOs
# In the last two the encoder had the columns of `orders` in another order (`test_protocols.py`).
FOLDERS = (wire_storage.CSV, wire_storage.CSV_OLD_VALUE, wire_storage.CANAL_JSON)
SHIFTED = FOLDERS[1:]
KEYLESS = "audit_log"
soak, more = pytest.mark.soak, pytest.mark.more


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """This machine has another zone than TiCDC and Spark."""
    with monkeypatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path))
        patch.setenv("TZ", "America/St_Johns")
        time.tzset()
        yield tmp_path
    time.tzset()


def some_other(seed: int, names: Names | None = None) -> Other:
    values = Values(seed, zone=ZONES[seed % len(ZONES)])
    return Other(some_names("any", seed) if names is None else names, values)


def lives_of(variant: str, other: Other, folder: Path, *, partitions: int = 3) -> Lives:
    path = folder / "messages.jsonl"
    protocol = next(each for each in PROTOCOLS if variant.startswith(each))
    uri = f"file://{path}?protocol={protocol}&partition-num={partitions}"
    uri += f"&enable-tidb-extension=true&time-zone={quote(other.zone)}"
    if variant.endswith("claim-check"):
        claims = other.claims(variant, folder / "claims")
        uri += f"&large-message-handle-option=claim-check&claim-check-storage-uri=file://{claims}"
    return Lives(ThreadsOfProcess, None, folder, source=parse_source_uri(uri))


def assert_leads_to(
    lives: Lives, other: Other, label: str, *, but: str = "", move: int = 0
) -> None:
    """``but``: a table that is not looked at. ``move``: of the TSOs."""
    lives.finish(target_ts=wire.state_ts(label) + move)
    left_out = {other.names.table(KEYLESS), other.names.table(but)}
    letters = [each for each in lives.dead_letters() if each["table_name"] not in left_out]
    told = {(each["table_name"], each["error_class"], each["message"]) for each in letters}
    found = other.differences(lives.warehouse, label, but=but)
    assert (label, found, told) == (label, [], set())


@pytest.mark.parametrize(
    ("variant", "labels"),
    [
        (MESSAGES[0], ("final",)),
        *(pytest.param(each, wire.LABELS, marks=soak) for each in MESSAGES),
        *(pytest.param(each, ("after_first_ddls",), marks=soak) for each in EARLY),
    ],
)
@pytest.mark.parametrize(
    "seed", [pytest.param(1, marks=more), *(pytest.param(each, marks=soak) for each in range(2, 7))]
)
def test_other_names_values_and_zones(
    variant: str, labels: tuple[str, ...], seed: int, *, folder: Path
) -> None:
    other = some_other(seed)
    write(other.messages(variant), folder / "messages.jsonl")
    lives = lives_of(variant, other, folder)
    for label in labels:
        assert_leads_to(lives, other, label)


@contextmanager
def avro(seed: int, folder: Path) -> Iterator[tuple[Lives, Other]]:
    other = some_other(seed, for_avro(some_names("any", seed)))
    made = OtherAvro(other, "avro-watermark")
    path = write(made.messages(), folder / "messages.jsonl")
    needed = "protocol=avro&enable-tidb-extension=true&avro-enable-watermark=true"
    with serving(SchemaRegistry(made.schemas)) as registry:
        uri = f"file://{path}?{needed}&schema-registry={registry.url}"
        source = parse_source_uri(f"{uri}&time-zone={quote(other.zone)}")
        yield Lives(ThreadsOfProcess, None, folder, source=source), other


@pytest.mark.parametrize("seed", [2, *(pytest.param(each, marks=soak) for each in range(3, 9))])
def test_other_names_values_and_zones_of_avro(seed: int, *, folder: Path) -> None:
    """Seed 2 hands the names of tables on in an order that is not the topics'."""
    with avro(seed, folder) as (lives, other):
        lives.finish(target_ts=wire.state_ts("final"))
        letters = {each["error_class"] for each in lives.dead_letters()}
        assert letters <= {"delete-without-key", "no-key"}
        assert other.differences(lives.warehouse, "final", kept=sanitized) == []


def shaped(variant: str, shape: str, dice: random.Random) -> tuple[list[WireMessage], int]:
    """And the number of partitions."""
    made, partitions = list(wire.messages(variant)), {"one": 1, "six": 6, "all": 6}.get(shape, 3)
    if shape in ("again", "all"):
        made = shapes.sent_again(made, dice)
    if shape in ("few", "all"):
        made = list(shapes.few_watermarks(made, dice))
    if shape in ("twice", "all"):
        made = list(shapes.twice(made))
    if shape == "batches" and variant.startswith("open"):
        made = list(shapes.in_batches(made, dice.randrange(1, 5)))
    if shape == "topics":
        singly = shapes.in_batches(made, 1) if variant.startswith("open") else made
        made = list(shapes.topic_each(singly))
    if shape == "nineties":
        made = list(shapes.at_another_time(made, NINETIES))
    return list(shapes.numbered(shapes.with_partitions(made, partitions))), partitions


@pytest.mark.parametrize("seed", [0, *(pytest.param(each, marks=soak) for each in range(1, 5))])
@pytest.mark.parametrize(
    ("variant", "shape"),
    [
        ("open-protocol", "all"),
        *(pytest.param(v, s, marks=soak) for v in MESSAGES for s in SHAPES),
        pytest.param("canal-json-interleaved", "all", marks=soak),
    ],
)
def test_other_orders(variant: str, shape: str, seed: int, *, folder: Path) -> None:
    made, partitions = shaped(variant, shape, random.Random(seed))
    write(iter(made), folder / "messages.jsonl")
    lives = lives_of(variant, Other(), folder, partitions=partitions)
    for label in ("after_updates", "after_renames", "final")[-1 if seed == 0 else 0 :]:
        assert_leads_to(lives, Other(), label, move=NINETIES if shape == "nineties" else 0)


def some_csv(dice: random.Random, was: Csv) -> Csv:
    quotes = dice.choice(('"', "'", "~", ""))
    delimiters = [",", "|", ";", "\t", "^", "@#,", "\x01", "::x"]
    return replace(
        was,
        delimiter=dice.choice(delimiters),
        quote=quotes,
        null=dice.choice(("\\N", "NULL", "", "null", "n/a")) if quotes else "\\N",
        terminator=dice.choice(("\r\n", "\n")),
        binary=dice.choice(("base64", "hex")),
        has_header=not was.has_handle_key and dice.random() < 0.5,
    )


def without_slashes(names: Names) -> Names:
    """Names that folders can have."""

    def of(name: str) -> str:
        return {".": "dot", "..": "dots"}.get(name, name.replace("/", "-"))

    tables = {was: of(now) for was, now in names.tables.items()}
    return replace(names, schema=of(names.schema), tables=tables)


@pytest.mark.parametrize(
    ("variant", "seed"),
    [
        pytest.param(FOLDERS[0], 3, marks=more),
        *(pytest.param(v, seed, marks=soak) for v in FOLDERS for seed in range(4, 10)),
    ],
)
def test_other_folders(variant: str, seed: int, *, folder: Path) -> None:
    dice, cdc = random.Random(seed), folder / "cdc"
    other = some_other(seed, without_slashes(some_names("any", seed)))
    is_dated = variant != wire_storage.CSV_OLD_VALUE
    separator = dice.choice(("day", "month", "year", "none")) if is_dated else "none"
    csv = some_csv(dice, RECORDED[variant]) if variant in RECORDED else None
    ends = dice.choice(("\r\n", "\n"))
    for step in OtherFolder(other, variant, csv, separator, ends).steps():
        wire_storage.write(step, cdc)
    needed = wire_storage.PARAMETERS[variant] if csv is None else csv.parameters
    uri = f"file://{cdc}?{needed}&date-separator={separator}&time-zone={quote(other.zone)}"
    lives = Lives(ThreadsOfProcess, None, folder, source=parse_source_uri(uri), quiet_s=0.2)
    assert_leads_to(lives, other, "final", but="orders" if variant in SHIFTED else "")
