"""A watermark that does not come while messages wait for it is named, with the way out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from conf.sources.source_uri import parse_source_uri
from sinks.control.changefeeds import RecordedWatermark
from streaming.owner import outlook
from streaming.owner.outlook import AwaitedWatermark
from streaming.stream.lasting_warnings import LastingWarnings

URI = "kafka://b:9092/t?protocol=canal-json&partition-num=2&"


class Ground:
    def __init__(self, more: str = "enable-tidb-extension=true", uri: str = URI) -> None:
        self.concerns = LastingWarnings()
        self.marks = {"t/0": RecordedWatermark(ts=90, position=9)}
        self.position = {"t/0": 10, "t/1": 0}
        self.ends: dict[str, int] | None = None  # None: all is read
        stream = SimpleNamespace(
            marks=lambda _: self.marks,
            resolved_ts=lambda: min(
                self.marks[part].ts if part in self.marks else 0 for part in self.position
            ),
            backlog=SimpleNamespace(
                look=lambda: SimpleNamespace(ends=self.ends or dict(self.position))
            ),
        )
        self._stream: Any = stream
        context: Any = SimpleNamespace(
            changefeed=SimpleNamespace(source=parse_source_uri(uri + more)),
            concerns=self.concerns,
            stream=stream,
        )
        self.awaited = AwaitedWatermark(context)

    def look(self) -> str:
        self._stream.position = self.position
        self.awaited.look()
        return self.concerns.first or ""


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlook, "SAYS_AFTER_S", -1.0)


def test_nothing_waits_behind_the_last_watermark() -> None:
    ground = Ground()
    assert [ground.look(), ground.look()] == ["", ""]


def test_rows_wait_for_the_part_without_a_watermark() -> None:
    ground = Ground()
    ground.position = {"t/0": 12, "t/1": 0}
    assert ground.look() == ""  # it has just begun
    said = ground.look()
    assert "messages of t/0 were read and are not applied" in said
    assert "a watermark of t/1 above 0" in said
    assert "partition-num" in said


def test_it_is_over_when_the_least_watermark_rises() -> None:
    ground = Ground()
    ground.marks["t/1"] = RecordedWatermark(ts=80, position=4)
    ground.position = {"t/0": 10, "t/1": 7}
    ground.look()
    assert "a watermark of t/1 above 80" in ground.look()
    ground.marks["t/1"] = RecordedWatermark(ts=95, position=6)
    assert ground.look() == ""


def test_what_is_not_read_to_its_end_may_have_its_watermark_still() -> None:
    ground = Ground()
    ground.position = {"t/0": 12, "t/1": 0}
    ground.ends = {"t/0": 12, "t/1": 5}
    assert [ground.look(), ground.look()] == ["", ""]


def test_rows_in_files_wait_for_the_file_metadata() -> None:
    """A folder whose TiCDC writes it no more looked as if all were well."""
    ground = Ground(uri="file:///feed?protocol=canal-json&")
    ground.position = {"t/0": 12}
    ground.look()
    said = ground.look()
    assert "messages of t/0 were read and are not applied" in said
    assert "does it write the file `metadata` of this folder" in said


def test_readers_that_give_the_commit_ts_await_none() -> None:
    ground = Ground("at-least-once=true")
    ground.position = {"t/0": 12, "t/1": 0}
    assert [ground.look(), ground.look()] == ["", ""]
