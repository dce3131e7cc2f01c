"""Somebody cleans the temporary folder while the program works: it goes on, and says what to do."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from coordination.etcd.embedded import EmbeddedEtcd
from streaming.spark.temporary_folder import PREFIX
from tests.acceptance.live_feed import LiveFeed
from tests.acceptance.processes import Life, Stage
from tests.services.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.acceptance]


def swept(life: Life, tmp_path: Path) -> list[str]:
    """Take away the folders of a life; which ones."""
    found = sorted((tmp_path / life.name).glob(f"{PREFIX}[0-9]*"))
    for folder in found:
        shutil.rmtree(folder, ignore_errors=True)
    return [each.name for each in found]


@pytest.mark.parametrize(
    "engine", ["merge-on-write", pytest.param("spark", marks=pytest.mark.soak)]
)
def test_a_folder_that_is_swept_is_begun_anew_with_a_sentence(
    broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path, engine: str
) -> None:
    with (
        Stage(broker, etcd.endpoint, tmp_path) as stage,
        LiveFeed(broker, stage.topic, seed=21) as feed,
    ):
        life = stage.start("swept", apply_engine=engine)
        stage.await_progress(life)
        stage.await_progress(life)
        for nth in (1, 2):
            assert swept(life, tmp_path)
            said = life.await_line("was cleaned while the process works", nth=nth)
            assert "Exclude tidelake-*" in said
            stage.await_progress(life)
            stage.await_progress(life)
        stage.await_checkpoint(feed.close(), life)
        life.signal(signal.SIGTERM, group=True)  # its JVM gets it too, as from systemd
        assert life.await_exit() == 0, life.tail()
        stage.assert_equal(feed.events)
        assert life.lines("Traceback") == []
        assert life.lines(" ERROR ") == []  # nor Delta's, which are no errors
        assert life.lines("Spark has ended") == []
