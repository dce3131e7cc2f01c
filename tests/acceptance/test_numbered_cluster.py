"""Two captures on messages that their reader numbers. The owner changes amid the stream, once
without a death and once by one: what it numbered and did not store is numbered anew, and each
change is applied once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from conf.settings import EtcdSettings
from coordination.etcd import keys
from coordination.etcd.client import delete
from coordination.etcd.embedded import EmbeddedEtcd
from coordination.etcd.etcd3_client import connect
from coordination.model import ChangefeedID
from tests.acceptance.processes import STOP_WITHIN_S, Life, Stage, await_
from tests.acceptance.progress_watch import ProgressWatch
from tests.acceptance.test_numbered_kills import CONFIG, Shop, rows
from tests.services.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.acceptance, pytest.mark.kafka]

LEADS = "capture leads"


class Numbered(Stage):
    """A stage with a shop of its own."""

    def __init__(self, broker: KafkaBroker, etcd: EmbeddedEtcd, folder: Path) -> None:
        super().__init__(broker, etcd.endpoint, folder)
        self.folder = folder
        self.warehouse = folder / "lake"  # where `rows` looks
        self.watch = ProgressWatch(self.warehouse)
        self._etcd = EtcdSettings(endpoints=(etcd.endpoint,), embedded=False)
        self._config = folder / "changefeed.toml"
        self._config.write_text(CONFIG)

    def __enter__(self) -> Numbered:
        self.shop = Shop(self._broker, self.topic)
        self.watch.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shop.stop()
        super().__exit__(*error)

    @property
    def source_uri(self) -> str:
        return (
            f"kafka://{self._broker.bootstrap}/{self.topic}?protocol=canal-json&at-least-once=true"
        )

    def capture(self, name: str) -> Life:
        return self.start(name, given={"TIDELAKE_CONFIG": str(self._config)})

    def depose(self) -> None:
        """The owner's key in the election goes, and its session stays."""
        with closing(connect(self._etcd)) as client:
            scope = keys.run_scope(self.cluster_id, ChangefeedID("shop"))
            found = client.range(keys.election_prefix(scope), prefix=True).kvs
            delete(client, min(found, key=lambda each: each.create_revision).key)

    def await_more(self, life: Life) -> None:
        """Rows in both tables that are not there now."""
        before = {name: self.newest(name) for name in ("t", "log")}
        await_(
            f"rows while {life.name} lives",
            lambda: life.is_over or all(self.newest(name) > n for name, n in before.items()),
        )
        assert not life.is_over, life.tail()

    def newest(self, table: str) -> int:
        return max((each["at"] for each in rows(self.folder, table)), default=-1)


@pytest.fixture
def stage(broker: KafkaBroker, etcd: EmbeddedEtcd, tmp_path: Path) -> Iterator[Numbered]:
    with Numbered(broker, etcd, tmp_path) as made:
        yield made


@pytest.mark.more
def test_each_change_is_applied_once_when_the_owner_changes(stage: Numbered) -> None:
    one = stage.capture("one")
    one.await_line(LEADS)
    stage.await_more(one)
    other = stage.capture("other")
    other.await_line("stream started")  # it writes a table
    stage.await_more(other)
    stage.depose()
    other.await_line(LEADS)
    stage.await_more(one)
    other.kill(group=True)
    one.await_line(LEADS, nth=2)
    stage.await_more(one)
    shop, folder = stage.shop, stage.folder
    shop.stop()
    await_("all", lambda: len(rows(folder, "log")) >= shop.sent.total())
    await_("last", lambda: {r["id"]: r["at"] for r in rows(folder, "t")} == shop.last)
    assert Counter((each["id"], each["at"]) for each in rows(folder, "log")) == shop.sent
    one.signal(15)
    assert one.await_exit(STOP_WITHIN_S) == 0, one.tail()
