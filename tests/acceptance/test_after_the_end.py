"""A changefeed of a cluster that has finished goes on, or back, where its operator says so."""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from coordination.etcd.embedded import EmbeddedEtcd
from tests.acceptance.processes import ON_THREADS, Life, await_, environment
from tests.acceptance.reported import at, ddl, mark, row
from tests.services.commands_here import run_here
from tests.services.delta_rows import read_rows
from tests.services.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.acceptance]

MADE = ddl(at(0), "t", "CREATE TABLE `shop`.`t` (`id` BIGINT PRIMARY KEY)", kind="CREATE")
FIRST, SECOND = at(2) - 1, at(4) - 1
TYPES = {"id": "bigint"}


class Feed:
    """The commands for one changefeed."""

    def __init__(self, etcd: EmbeddedEtcd, cluster_id: str) -> None:
        self.to = ("--etcd", etcd.endpoint, "--cluster-id", cluster_id)

    def __call__(self, name: str, *options: str, code: int = 0) -> tuple[dict[str, Any], str]:
        command = ("changefeed", name, "-c", "shop", *options, *self.to, "--format", "json")
        done = run_here(*command)
        assert done.code == code, f"{command}: {done.out}{done.err}"
        return (json.loads(done.out)["rows"][0] if code == 0 else {}), done.err

    def await_end(self, life: Life, ts: int) -> None:
        def is_so() -> bool:
            assert not life.is_over, life.tail()
            found = self("query")[0]
            return (found["state"], found["checkpoint_ts"]) == ("finished", ts)

        await_(f"the end at {ts}", is_so)


def test_what_has_finished_goes_on_and_back(
    broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path
) -> None:
    topic = f"ended-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, 1)
    broker.produce(topic, [MADE, row(at(1), "t", {"id": "1"}, TYPES), *mark(at(2))])
    feed, lake = Feed(etcd, topic), tmp_path / "lake"
    source = f"kafka://{broker.bootstrap}/{topic}?protocol=canal-json&enable-tidb-extension=true"
    uris = ("--source-uri", source, "--sink-uri", f"delta://{lake}")
    feed("create", *uris, "--target-ts", str(FIRST))
    folder = tmp_path / "server"
    folder.mkdir()
    command = [
        sys.executable,
        "-m",
        ON_THREADS,
        "server",
        "--addr",
        "127.0.0.1:0",
        *feed.to,
    ]
    life = Life("server", folder, command, environment(folder))
    try:
        feed.await_end(life, FIRST)
        assert ids(lake) == [1]

        for name in ("pause", "resume"):
            _, error = feed(name, code=2)
            assert f"its target-ts {FIRST}" in error
            assert "changefeed update --target-ts" in error
        _, error = feed("update", "--target-ts", str(at(1)), code=2)
        assert f"target-ts {at(1)} must be above the checkpoint-ts {FIRST}" in error

        broker.produce(topic, [row(at(3), "t", {"id": "2"}, TYPES), *mark(at(4))])
        assert feed("update", "--target-ts", str(SECOND))[0]["state"] == "finished"
        assert feed("resume")[0]["state"] == "normal"
        feed.await_end(life, SECOND)
        assert ids(lake) == [1, 2]

        feed("resume", "--overwrite-checkpoint-ts", str(at(0)))
        feed.await_end(life, SECOND)
        assert ids(lake) == [1, 2]

        broker.produce(topic, [row(at(5), "t", {"id": "3"}, TYPES), *mark(at(6))])
        feed("update", "--target-ts", "0")
        feed("resume")
        await_("a row without an end", lambda: ids(lake) == [1, 2, 3])
        feed("remove")
    finally:
        life.end()


def ids(lake: Path) -> list[int]:
    return sorted(each["id"] for each in read_rows(lake / "shop" / "t"))
