"""What a copy says and heeds at its end."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from conf.settings import Changefeed, DeltaSink, FilterSettings
from conf.sources.binlog_uri import BinlogSettings
from conf.sources.tidb_uri import TidbSettings
from coordination.errors import Stop
from coordination.model import Ts
from sinks.control.warehouse import ControlTables
from streaming.owner.start_point import first_row
from streaming.process import copy_first as module
from streaming.process.copy_first import copy_first
from streaming.process.signals import handling, stop_before_start
from streaming.source.dump import silent_reads
from streaming.source.dump.silent_reads import WATCH
from streaming.spans.copies.first_copy import FirstCopy
from streaming.spans.copies.moments import Moment
from streaming.spans.copies.settled_copy import SettledCopy, chosen_by
from streaming.spans.copies.tidb_copy import TidbCopy
from tests.own_lines import own_text
from tests.services.database_server import DatabaseServer


def feed_of(folder: Path, *rules: str) -> Changefeed:
    return Changefeed(
        id="c",
        source=TidbSettings(host="h", user="u", password=None),
        sink=DeltaSink(warehouse=str(folder / "lake")),
        filter=FilterSettings(rules=rules),
    )


def test_a_changefeed_that_no_table_is_to_join_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It began without a copy. An error would tell to leave the warehouse."""
    narrow, wide = feed_of(tmp_path, "shop.a"), feed_of(tmp_path, "shop.*")
    at = Moment(0, Ts(20))
    nothing = SettledCopy(
        server="", chosen=chosen_by(wide), begin=at, end=at, pins=(), definitions="", tables=()
    )
    monkeypatch.setattr(TidbCopy, "_settled", lambda _: nothing)
    table = ControlTables.of(narrow.sink).changefeeds
    read = {"source_positions": {"t/0": 5}, "checkpoint_ts": 9, "resolved_ts": 9}
    table.begin(replace(first_row(narrow), state="stopped", **read))
    before = table.read("c")
    with caplog.at_level(logging.INFO):
        copy_first(wide)
    assert "nothing is copied" in own_text(caplog)
    assert "the changefeed goes on where it was" in own_text(caplog)
    assert "changefeed create" not in own_text(caplog)
    assert table.read("c") == before


def test_a_stop_that_comes_too_late_for_the_copy_ends_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy looks no more, and nothing else would: the program went on for ever."""
    source = BinlogSettings(host="h", port=3306, user="u", task_mode="all")
    monkeypatch.setattr(FirstCopy, "is_done", False)
    monkeypatch.setattr(FirstCopy, "run", lambda _: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Stop, match="after the copy"), handling(stop_before_start):
        copy_first(replace(feed_of(tmp_path), source=source))


@pytest.mark.mariadb
def test_a_copy_that_waits_for_a_lock_says_so_in_its_row_and_can_be_stopped(
    mariadb: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said nothing for an hour, and SIGTERM did not end it."""
    monkeypatch.setattr(WATCH, "_says_after_s", 0.3)
    monkeypatch.setattr(silent_reads, "STOPS_AFTER_S", 0.3)
    monkeypatch.setattr(module, "SHOWN_FOR_S", 0.6)
    told: list[str] = []
    with mariadb.database("locked") as schema:
        mariadb.execute("CREATE TABLE t (a INT PRIMARY KEY)", database=schema)
        source = BinlogSettings(host=mariadb.host, port=mariadb.port, user="root", task_mode="all")
        feed = replace(feed_of(tmp_path, f"{schema}.t"), source=source)
        changefeeds = ControlTables.of(feed.sink).changefeeds

        def stop_when_told() -> None:
            until_s = time.monotonic() + 30.0
            while not told and time.monotonic() < until_s:
                row = changefeeds.read("c")
                if row is not None and row.state == "loading" and row.error is not None:
                    told.append(row.error)
                time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGTERM)

        with mariadb.connect(database=schema) as connection, connection.cursor() as cursor:
            cursor.execute("LOCK TABLES t WRITE")
            stopping = threading.Thread(target=stop_when_told)
            stopping.start()
            with pytest.raises(Stop), handling(stop_before_start):
                copy_first(feed)
            stopping.join()
    assert f"{schema}.t: Waiting for table metadata lock" in told[0]
