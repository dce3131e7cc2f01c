"""The program as a user meets it: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

import pytest

from coordination.model import Ownership, time_tso
from sinks.control.changefeeds import ChangefeedRow, Changefeeds, RecordedWatermark
from sinks.control.progress import Progress, ProgressRow
from sinks.control.snapshots import SnapshotRow, Snapshots
from streaming.cli.main import main
from streaming.operations.snapshots import parse_as_of
from streaming.process import logs, run

ROOT = Path(__file__).resolve().parents[3]
SOURCE = "kafka://127.0.0.1:9/shop?protocol=canal-json&enable-tidb-extension=true"
AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
TS = time_tso(AT)
JSON = ("--format", "json")
OWNER = Ownership(capture_id="capture-1", epoch="epoch-1", etcd_cluster_id="c", election_revision=7)
QUICK_S = 5.0  # of a processor; others may have it meanwhile


@dataclass(frozen=True)
class Ended:
    returncode: int
    stdout: str
    stderr: str


Program = Callable[..., Ended]


@contextmanager
def quick() -> Iterator[None]:
    before = sum(os.times()[:4])
    yield
    assert sum(os.times()[:4]) - before < QUICK_S


@pytest.fixture
def program(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    """The program in this process: a second faster than in one of its own."""
    for name in [name for name in os.environ if name.startswith("TIDELAKE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: str, **environment: str) -> Ended:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        code = 0
        try:
            main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
        return Ended(code, *capfd.readouterr())

    return run


def tidelake(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "streaming.cli.main", *arguments],
        cwd=ROOT,
        env={**_environment(), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDELAKE_")}
    return {**kept, "COLUMNS": "100", "NO_COLOR": "1"}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Control tables of a changefeed at ``TS`` that waits for one of its partitions."""
    path = str(tmp_path_factory.mktemp("lake"))
    changefeeds = Changefeeds(path)
    first = ChangefeedRow(changefeed_id="shop", start_ts=0, checkpoint_ts=TS, resolved_ts=TS + 1)
    row = changefeeds.claim(first, OWNER, ttl_s=3600, stop=threading.Event())
    row = replace(
        row,
        state="running",
        source_positions={"shop/0": 5, "shop/1": 7, "shop/2": 0},
        read_positions={"shop/0": 9, "shop/1": 9, "shop/2": 3},
        end_positions={"shop/0": 40_009, "shop/1": 5_009, "shop/2": 3},
        messages_behind=45_000,
        messages_per_s=1_500.0,
        time_left_s=30.0,
        watermarks={
            "shop/0": RecordedWatermark(ts=TS + 1, position=9),
            "shop/1": RecordedWatermark(ts=TS + 5, position=9),
        },
    )
    changefeeds.save(row)
    progress = Progress(path)
    progress.claim("shop", row.term)
    progress.advance([_span(row, "orders", 3), _span(row, "customers", 12)], row.term)
    snapshots = Snapshots(path)
    snapshots.claim("shop", row.term)
    for ts, version in ((TS - 100, 2), (TS, 3)):
        tables = {"shop.orders": version, "shop.customers": 12}
        snapshots.publish(SnapshotRow(changefeed_id="shop", primary_ts=ts, tables=tables), row.term)
    return path


def _span(row: ChangefeedRow, table: str, version: int) -> ProgressRow:
    return ProgressRow(
        changefeed_id="shop",
        incarnation=row.incarnation,
        schema_name="shop",
        table_name=table,
        generation=0,
        state="running",
        checkpoint_ts=TS,
        resolved_ts=TS + 1,
        delta_version=version,
        engine="merge-on-write",
        dead_letters=0,
        capture_id=row.capture_id,
        epoch=row.epoch,
        fence=row.term << 32,
        dropped_columns={"note": 1234} if table == "orders" else {},
    )


@pytest.mark.parametrize("asked", ["--version", "version"])
def test_version(program: Program, asked: str):
    ended = program(asked)
    assert (ended.returncode, ended.stdout.split()[0]) == (0, "tidelake")
    assert len(ended.stdout.split()) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run"], "source-uri is missing"),
        (["run", "--source-uri", SOURCE], "sink-uri is missing"),
        (["run", "--source-uri", SOURCE, "--sink-uri", "/lake"], "sink-uri: a bare path"),
        (["run", "--source-uri", SOURCE, "--sink-uri", SOURCE], "that is --source-uri here"),
        (["progress", "--sink-uri", SOURCE], "that is --source-uri here"),
        (
            ["run", "--source-uri", "delta:///a", "--sink-uri", "delta:///a"],
            "source-uri: that is --sink-uri here",
        ),
        (["run", "--source-uri", "s3://b/x", "--sink-uri", "delta:///a"], "protocol is missing"),
        (
            ["run", "--source-uri", SOURCE, "--sink-uri", "delta:///a", "--etcd", "h"],
            "etcd: 'h' must be http://host:2379",
        ),
        (["run", "--config", "nowhere.toml"], "nowhere.toml: cannot be read"),
        (["progress"], "sink-uri is missing"),
        (["progress", "--sink-uri", "delta+hdfs://n/a"], "not built yet"),
        (["snapshot", "--sink-uri", "delta:///a", "--as-of", "noon"], "neither a TSO nor a time"),
        (["snapshot", "--sink-uri", "delta:///a", "--as-of", "2026-01-31"], "no time zone"),
    ],
)
def test_a_wrong_setting_is_one_line_and_two(program: Program, arguments: list[str], says: str):
    with quick():
        ended = program(*arguments)
    assert ended.returncode == 2
    assert ended.stderr.startswith("tidelake: ")
    assert says in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert ended.stdout == ""


def test_the_process_ends_with_that_code_too():
    with quick():
        ended = tidelake("run", "--source-uri", SOURCE)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("tidelake: sink-uri is missing")


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["run", "--source-uri", SOURCE, "--log-format", "json"], {}),
        (["server", "--addr", "nowhere", "--etcd", "http://h:1"], {"TIDELAKE_LOG_FORMAT": "json"}),
    ],
)
def test_who_wants_json_gets_refusals_as_json(arguments: list[str], environment: dict[str, str]):
    ended = tidelake(*arguments, **environment)
    line = json.loads(ended.stderr)
    assert (ended.returncode, line["level"], line["logger"]) == (2, "ERROR", "tidelake")


def test_what_nobody_expected_ends_with_an_error_line_too(
    program: Program, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logs, "install", Mock())
    failed = Mock()
    monkeypatch.setattr(logs, "failed", failed)
    monkeypatch.setattr(run, "run", Mock(side_effect=ZeroDivisionError("odd")))
    ended = program("run", "--source-uri", SOURCE, "--sink-uri", "delta:///a")
    assert (ended.returncode, ended.stderr) == (1, "")
    (error,) = failed.call_args.args
    assert (str(error), failed.call_args.kwargs) == ("odd", {"traceback": True})


@pytest.mark.parametrize(
    "arguments",
    [["rnu"], ["run", "--sink-ur", "x"], ["run", "--start-ts", "soon"], ["run", "stray"], []],
)
def test_wrong_usage_is_two_without_a_traceback(program: Program, arguments: list[str]):
    ended = program(*arguments)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr


def test_progress_shows_each_table_and_what_holds_it_back(program: Program, warehouse: str):
    ended = program("progress", "--sink-uri", f"delta://{warehouse}")
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert any(line.startswith("shop.customers") and " 12 " in line for line in lines)
    assert any(line.startswith("shop.orders") and "merge-on-write" in line for line in lines)
    assert "no watermark yet from shop/2" in ended.stdout
    assert "shop.orders lacks columns, whose values are dropped: note (1234)" in ended.stdout
    assert "01-31T12:00:00" in ended.stdout


def test_progress_shows_the_backlog(program: Program, warehouse: str):
    ended = program("progress", "--sink-uri", f"delta://{warehouse}")
    _, head, line = ended.stdout.splitlines()[:3]
    cells = dict(zip(re.split(r"\s{2,}", head), re.split(r"\s{2,}", line), strict=False))
    found = [cells[name] for name in ("behind", "messages/s", "left")]
    assert found == ["45,000", "1,500", "30.0s"]
    assert "does not catch up" not in ended.stdout


def test_before_the_first_checkpoint_there_is_no_time_and_no_lag(program: Program, tmp_path: Path):
    changefeeds = Changefeeds(str(tmp_path))
    for name, start_ts in (("zero", 0), ("one", 1)):
        row = ChangefeedRow(
            changefeed_id=name, start_ts=start_ts, checkpoint_ts=start_ts, resolved_ts=start_ts
        )
        row = changefeeds.claim(row, OWNER, ttl_s=3600, stop=threading.Event())
        offsets = {"shop/0": 0, "shop/1": 0}
        row = replace(row, state="running", source_positions=offsets, read_positions=offsets)
        changefeeds.save(
            replace(row, end_positions={"shop/0": 10, "shop/1": 0}, messages_behind=10)
        )
        progress = Progress(str(tmp_path))
        progress.claim(name, row.term)
        span = replace(_span(row, "orders", 1), changefeed_id=name, checkpoint_ts=start_ts)
        progress.advance([span], row.term)
    shown = program("progress", "--sink-uri", f"delta://{tmp_path}", COLUMNS="200").stdout
    assert "1970" not in shown
    assert not re.search(r"\d\.\dd\b", shown)
    # Of what is still read nobody knows whether it has a watermark.
    assert "no watermark yet from shop/1:" in shown
    found = json.loads(program("progress", "--sink-uri", f"delta://{tmp_path}", *JSON).stdout)
    for each in (*found["changefeeds"], *found["spans"]):
        assert (each["checkpoint_time"], each["lag_s"]) == (None, None)
    assert found["changefeeds"][0]["messages_behind"] == 10


def test_who_does_not_catch_up_is_told_so(program: Program, tmp_path: Path):
    changefeeds = Changefeeds(str(tmp_path))
    row = ChangefeedRow(changefeed_id="shop", start_ts=0, checkpoint_ts=TS, resolved_ts=TS)
    row = changefeeds.claim(row, OWNER, ttl_s=3600, stop=threading.Event())
    row = replace(row, state="running", messages_behind=9_000, messages_per_s=10.0)
    changefeeds.save(row)
    shown = program("progress", "--sink-uri", f"delta://{tmp_path}").stdout
    assert "shop: it does not catch up" in shown


def test_progress_as_json_has_the_lag_of_now(program: Program, warehouse: str):
    ended = program("progress", "--sink-uri", f"delta://{warehouse}", "--format", "json")
    found = json.loads(ended.stdout)
    (changefeed,) = found["changefeeds"]
    expected = (datetime.now(UTC) - AT).total_seconds()
    assert changefeed["checkpoint_ts"] == TS
    assert changefeed["lag_s"] == pytest.approx(expected, abs=60)
    assert changefeed["without_watermark"] == ["shop/2"]
    assert changefeed["slowest_part"] is None  # shop/2 has not spoken
    assert changefeed["messages_behind"] == 45_000
    assert [span["table_name"] for span in found["spans"]] == ["customers", "orders"]
    assert found["spans"][0]["checkpoint_time"] == "2026-01-31T12:00:00+00:00"


def test_watching_ends_with_ctrl_c_and_zero(warehouse: str):
    options = ["progress", "--watch", "--format", "json"]
    command = [sys.executable, "-m", "streaming.cli.main", *options]
    process = subprocess.Popen(
        [*command, "--sink-uri", f"delta://{warehouse}"],
        cwd=ROOT,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    twice = [json.loads(process.stdout.readline()) for _ in range(2)]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")
    assert twice[0]["spans"][0]["lag_s"] < twice[1]["spans"][0]["lag_s"]


def test_snapshot_gives_the_sql_to_read_it(program: Program, warehouse: str):
    ended = program("snapshot", "--sink-uri", f"delta://{warehouse}")
    assert ended.returncode == 0, ended.stderr
    assert f"SELECT * FROM delta.`{warehouse}/shop/orders` VERSION AS OF 3;" in ended.stdout
    assert f"as of {TS}" in ended.stdout.replace("\n", " ")
    assert f"table shop.orders: there is no Delta table any more at {warehouse}" in ended.stdout


def test_snapshot_gives_views_for_a_reader(program: Program, warehouse: str):
    ended = program("snapshot", "--sink-uri", f"delta://{warehouse}", "--sql", "databricks")
    view = f"VIEW `shop_orders` AS SELECT * FROM delta.`{warehouse}/shop/orders` VERSION AS OF 3;"
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[-1] == f"CREATE OR REPLACE TEMPORARY {view}"


@pytest.mark.parametrize("as_of", [str(TS - 1), "2026-01-31T11:59:59.999Z"])
def test_snapshot_as_of_an_earlier_time(program: Program, warehouse: str, as_of: str):
    arguments = ["--sink-uri", f"delta://{warehouse}", "--format", "json", "--as-of", as_of]
    found = json.loads(program("snapshot", *arguments).stdout)
    assert found["primary_ts"] == TS - 100
    assert {table["table"]: table["version"] for table in found["tables"]} == {
        "shop.customers": 12,
        "shop.orders": 2,
    }


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["progress", "--sink-uri", "delta:///nowhere/at/all"], 1, "no changefeed has run in"),
        (["snapshot", "--sink-uri", "delta:///nowhere/at/all"], 1, "no changefeed has run in"),
        (["progress", "--changefeed-id", "x"], 2, "has no changefeed 'x', but shop"),
        (["snapshot", "--as-of", "5"], 1, f"the earliest that is kept is at {TS - 100}"),
    ],
)
def test_what_is_not_there_is_one_line(
    program: Program, warehouse: str, arguments: list[str], code: int, says: str
):
    ended = program(*arguments, TIDELAKE_SINK_URI=f"delta://{warehouse}")
    assert ended.returncode == code
    assert says in ended.stderr
    assert "1970" not in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_as_of_a_time_takes_the_whole_millisecond():
    assert parse_as_of("2026-01-31T12:00:00Z") == TS + (1 << 18) - 1
    assert parse_as_of("2026-01-31T13:00:00+01:00") == TS + (1 << 18) - 1
    assert parse_as_of("470624430467317760") == 470624430467317760
