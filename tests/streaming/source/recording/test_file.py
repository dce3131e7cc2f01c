"""A recording's file: what is one, and what a user reads of one that is not."""

from __future__ import annotations

import base64
import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from conf.sources.recording_uri import RecordingSettings
from coordination.errors import ConfigError
from streaming.protocols.decoders import decoder_of
from streaming.source.contract import SourceLost
from streaming.source.recording import reader
from streaming.source.recording import source as recordings
from streaming.source.recording.file import RecordingFile, recording_file
from streaming.source.recording.lines_task import Lines, LinesTask, chunks
from streaming.source.recording.source import RecordingSource
from streaming.source.task_results import ReadFailure
from tests.own_lines import own_text


def line(partition: int, value: bytes | None, **more: Any) -> str:
    text = None if value is None else base64.b64encode(value).decode()
    return json.dumps({"topic": "t", "partition": partition, "value_b64": text, **more}) + "\n"


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(lines))
    return path


def everything(file: RecordingFile) -> dict[str, list[tuple[int, bytes | None]]]:
    lines = Lines(0, file.lines, 0, int(file.starts[-1]))
    found: dict[str, list[tuple[int, bytes | None]]] = {}
    for chunk in chunks(file.plain, lines, dict.fromkeys(file.parts, 0)):
        both = zip(chunk.positions.to_pylist(), chunk.values.to_pylist(), strict=True)
        found.setdefault(chunk.part, []).extend(both)
    return found


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("is_ended", [False, True])
def test_lines_are_positions(tmp_path: Path, is_packed: bool, is_ended: bool) -> None:
    """Columns may come in any order, and others be there; the last line may lack its end."""
    text = line(1, b"x" * 100_000, headers=[], note="Ü") + line(0, None) + line(10, b"\xff")
    text += '{"value_b64": "", "partition": 1, "offset": 5, "topic": "t", "key_b64": null}\n'
    data = (text if is_ended else text.rstrip("\n")).encode()
    path = tmp_path / ("m.jsonl.gz" if is_packed else "m.jsonl")
    path.write_bytes(gzip.compress(data) if is_packed else data)
    file = recording_file(str(path))
    assert (file.lines, file.parts) == (4, ("t/0", "t/1", "t/10"))
    assert everything(file) == {
        "t/0": [(1, None)],
        "t/1": [(0, b"x" * 100_000), (3, b"")],
        "t/10": [(2, b"\xff")],
    }
    assert [file.count("t/1", 0, last) for last in (0, 1, 3, 4)] == [0, 1, 1, 2]
    if is_packed:
        Path(file.plain).unlink()  # somebody cleans the temporary folder
        assert everything(recording_file(str(path))) == everything(recording_file(str(path)))


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("not JSON\n", "line 3 is no message of a recording"),
        ("\n", "line 3 is no message of a recording"),
        ('{"topic": "t"}\n', "line 3 is no message of a recording"),
        ('{"topic": "t", "partition": "one"}\n', "line 3 is no message of a recording"),
        ("[1]\n", "line 3 is no message of a recording"),
    ],
)
def test_a_line_that_is_no_message_is_named(tmp_path: Path, bad: str, says: str) -> None:
    path = write(tmp_path / "m.jsonl", line(0, b"a"), line(0, b"b"), bad, line(0, b"c"))
    with pytest.raises(ConfigError, match=says):
        recording_file(str(path))


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        recording_file(str(tmp_path / "none.jsonl"))
    with pytest.raises(ConfigError, match="is empty: no message was recorded"):
        recording_file(str(write(tmp_path / "empty.jsonl")))
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(line(0, b"a" * 1000).encode())[:-20])
    with pytest.raises(ConfigError, match=r"cut\.jsonl\.gz cannot be read"):
        recording_file(str(cut))


def test_a_read_is_cut_for_its_tasks_by_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "TASK_BYTES", 3_000)
    monkeypatch.setattr(reader, "FEW_BYTES", 100)
    lines = [line(at % 3, b"x" * (50 + 37 * (at % 11))) for at in range(200)]
    file = recording_file(str(write(tmp_path / "m.jsonl", *lines)))
    at, reads = 0, 0
    while at < file.lines:
        last = reader._reached(file, at, file.lines, 2)
        assert last > at
        lists = list(reader._lists(file, at, last, 2))
        assert [lists[0].begin, lists[-1].end] == [file.starts[at], file.starts[last]]
        assert all(a.end == b.begin for a, b in pairwise(lists))
        assert all(file.starts[each.first] == each.begin for each in lists)
        assert last == at + 1 or lists[-1].end - lists[0].begin <= 6_000
        at, reads = last, reads + 1
    assert reads > 5


def watermark(partition: int, ts: int) -> str:
    value = {"type": "TIDB_WATERMARK", "_tidb": {"watermarkTs": ts}}
    whole = {
        "id": 0, "database": "", "table": "", "pkNames": None, "isDdl": False, "es": 1, "ts": 1,
        "sql": "", "sqlType": None, "mysqlType": None, "data": None, "old": None, **value,
    }  # fmt: skip
    return line(partition, json.dumps(whole, separators=(",", ":")).encode())


def source(path: Path, **more: Any) -> RecordingSource:
    return RecordingSource(RecordingSettings(path=str(path), protocol="canal-json", **more))


def row(partition: int, ts: int) -> str:
    value = {
        "id": 0, "database": "shop", "table": "t", "pkNames": ["id"], "isDdl": False,
        "type": "INSERT", "es": 1, "ts": 1, "sql": "", "sqlType": {"id": 4},
        "mysqlType": {"id": "int"}, "old": None, "data": [{"id": "1"}], "_tidb": {"commitTs": ts},
    }  # fmt: skip
    return line(partition, json.dumps(value, separators=(",", ":")).encode())


def test_it_ends_at_its_least_watermark(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "SLICE_BYTES", 300)  # one line at a time
    path = write(tmp_path / "m.jsonl", *(watermark(p, ts) for p, ts in ((0, 5), (1, 7), (0, 9))))
    assert source(path).end_ts() == 7
    assert own_text(caplog) == ""
    write(path, row(0, 8), watermark(0, 9), watermark(1, 7))
    assert source(path).end_ts() == 7
    assert "has changes up to commit-ts 8" in own_text(caplog)
    assert "is 7: changes above it may be incomplete, and are not applied" in own_text(caplog)
    write(path, watermark(0, 5), line(1, b"x"), line(2, b"y"))
    with pytest.raises(ConfigError, match="has no watermark of t/1, t/2, so no row"):
        source(path).end_ts()
    assert source(path, partition_num=1).end_ts() == 5, "the others may get none"
    shape = source(path, partition_num=1).shape()
    assert shape.strays == {"t/1", "t/2"}


def test_a_topic_whose_table_is_gone_holds_nothing_back(tmp_path: Path) -> None:
    """One that got no more watermarks when another topic did in all of its partitions."""
    others = [watermark(p, ts).replace('"t"', '"gone"') for p, ts in ((0, 5), (1, 5), (0, 6))]
    path = write(tmp_path / "m.jsonl", watermark(0, 9), watermark(1, 8), *others)
    assert source(path).shape().strays == {"gone/0", "gone/1"}
    assert source(path).end_ts() == 8
    write(path, watermark(0, 9), watermark(1, 6), *others)
    assert source(path).shape().strays == set(), "it may be that the recording was torn off"
    assert source(path).end_ts() == 5


@pytest.mark.parametrize("value", ["not base64!", "eyJ"])
def test_a_value_that_is_no_base64_is_told(tmp_path: Path, value: str) -> None:
    bad = json.dumps({"topic": "t", "partition": 0, "value_b64": value}) + "\n"
    file = recording_file(str(write(tmp_path / "m.jsonl", line(0, b"a"), bad)))
    task = LinesTask(
        file.plain,
        [Lines(0, file.lines, 0, int(file.starts[-1]))],
        {"t/0": 0},
        decoder_of("canal-json"),
        {},
        None,
    )
    with pytest.raises(ConfigError, match=r"m\.jsonl cannot be read: line 2: value_b64: "):
        source(tmp_path / "m.jsonl").end_ts()
    (failure,) = list(task(0))
    assert isinstance(failure, ReadFailure)
    assert failure.is_unreadable
    with pytest.raises(SourceLost, match=r"m\.jsonl cannot be read: line 2: value_b64: "):
        list(reader._in_order(file, [failure], {"t/0": 0}, {"t/0": 2}))
