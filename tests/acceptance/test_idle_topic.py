"""On a topic where nothing comes any more, what is shown follows what is so all the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from coordination.etcd import keys
from coordination.metadata.lookup import read_changefeed
from coordination.metadata.records import ChangefeedInfo, FeedState
from coordination.model import ChangefeedID
from sinks.control.changefeeds import ChangefeedRow
from streaming.changefeed.freshness import Freshness
from streaming.cli import terminal
from streaming.jobs.on_threads import ThreadsOfProcess
from streaming.operations.progress_report import read_progress
from tests.acceptance.one_process import CHANGEFEED, Lives
from tests.acceptance.reported import at, ddl, mark, row
from tests.acceptance.small_tables import new_topics
from tests.services.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.acceptance]

MADE = ddl(at(0), "t", "CREATE TABLE `shop`.`t` (`id` BIGINT PRIMARY KEY)", kind="CREATE")
ROWS = [row(at(n), "t", {"id": f"{n}"}, {"id": "bigint"}) for n in (1, 2)]
LAST = at(3) - 1


@pytest.fixture
def own_broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture
def lives(
    own_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lives]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with new_topics(ThreadsOfProcess, own_broker, tmp_path) as make:
        yield make(1, partitions=None)


def info(lives: Lives) -> ChangefeedInfo:
    """As `changefeed query` reads it."""
    name = ChangefeedID(CHANGEFEED)
    scope = keys.run_scope("lives", name)
    return read_changefeed(lives._etcd, scope, keys.ChangefeedName(name)).known_info


def awaits(lives: Lives) -> str:
    name = ChangefeedID(CHANGEFEED)
    scope = keys.run_scope("lives", name)
    status = read_changefeed(lives._etcd, scope, keys.ChangefeedName(name)).status
    return status.awaits if status is not None else ""


def shown(lives: Lives) -> str:
    sink = lives.settings.changefeed.sink
    console = Console(width=400, record=True)
    console.print(terminal.progress(read_progress(sink, None, Freshness()), 400))
    return console.export_text()


def stored(lives: Lives) -> ChangefeedRow:
    found = lives.changefeed()
    assert found is not None
    return found


def place(row: ChangefeedRow) -> tuple[int, int]:
    return row.incarnation, row.checkpoint_ts


def standing(row: ChangefeedRow) -> tuple[str, str | None]:
    return row.state, row.error


def test_an_outage_of_the_broker_is_shown_and_so_is_its_end(
    lives: Lives, own_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Delta and in etcd, twice: no watermark comes in between, nor after it."""
    monkeypatch.setattr("streaming.stream.backlog_watch.SOURCE_SILENT_S", 1.0)
    lives.produce([MADE, *ROWS, *mark(at(3))])
    life = lives.begin()
    life.wait_until(lambda: (found := lives.changefeed()) and found.checkpoint_ts == LAST)
    for _ in range(2):
        own_broker.kill()
        life.wait_until(lambda: stored(lives).state == "warning" and stored(lives).error)
        life.wait_until(lambda: info(lives).state is FeedState.WARNING)
        own_broker.restart()
        life.wait_until(lambda: standing(stored(lives)) == ("running", None))
        life.wait_until(lambda: info(lives).state is FeedState.NORMAL)
        assert (info(lives).warning, info(lives).error) == (None, None)
        life.wait_until(lambda: standing(stored(lives)) == ("running", None))
    assert stored(lives).checkpoint_ts == LAST
    assert life.stop() is None


def test_after_a_rewind_it_says_which_watermark_it_awaits(lives: Lives) -> None:
    lives.produce([MADE, *ROWS, *mark(at(3))])
    lives.finish(target_ts=LAST)
    life = lives.begin(overwrite_checkpoint_ts=at(1))
    life.wait_until(lambda: place(stored(lives)) == (2, LAST))
    assert lives.rows("t") == [{"id": 1}, {"id": 2}]
    assert stored(lives).state == "rewinding"
    note = f"come with a watermark of {lives.topics[0]}/0 above {LAST + 1}"
    assert note in shown(lives)
    life.wait_until(lambda: note in awaits(lives))
    lives.produce(mark(at(4)))
    life.wait_until(lambda: stored(lives).state == "running")
    life.wait_until(lambda: "rewinding" not in awaits(lives))
    assert "rewinding" not in shown(lives)
    assert life.stop() is None
