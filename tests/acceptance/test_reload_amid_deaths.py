"""`tidelake table reload` in a cluster whose captures die amid it, the leader too: in the end the
table is exact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coordination.etcd.embedded import EmbeddedEtcd
from tests.acceptance.processes import await_
from tests.acceptance.reloading_captures import HELD, Captures, captures_of
from tests.services.database_server import DatabaseServer

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb, pytest.mark.etcd]


@pytest.fixture
def captures(mariadb: DatabaseServer, etcd: EmbeddedEtcd, tmp_path: Path) -> Iterator[Captures]:
    with captures_of(mariadb, etcd, tmp_path) as found:
        yield found


SLOW = "&chunk-rows=20&connections=1&copy-rows-per-s=70"


def test_a_held_table_goes_on_though_a_capture_dies_and_then_the_leader(
    captures: Captures,
) -> None:
    for _ in range(2):
        captures.start()
    captures.create(SLOW)
    captures.hold("s")
    assert "tidelake table reload" in (captures.rows()[HELD].error or "")
    assert "the cluster's leader does it" in captures.order()
    await_("it copies", lambda: captures.ordered().rows > 0)
    leader = captures.leader()
    writer = next(each for each in captures.living() if each is not leader)
    writer.kill(group=True)
    assert captures.ordered().state == "copying"
    captures.write()
    captures.await_done()
    captures.write()
    captures.await_equal()
    await_("both replicate", lambda: captures.states() == {"replicating"})
    captures.start()
    captures.hold("s2")
    captures.order()
    await_("it copies", lambda: captures.ordered().rows > 0)
    leader = captures.leader()
    assert leader is not None
    leader.kill(group=True)
    assert captures.ordered().state == "copying"
    captures.write()
    captures.await_done()
    captures.write()
    captures.await_equal()
    await_("both replicate", lambda: captures.states() == {"replicating"})
    await_("the unit follows", lambda: captures.task("query")["stage"] == "Running")
    assert captures.task("query")["error"] is None
    captures.order()
    await_("it copies", lambda: captures.ordered().rows > 0)
    captures.task("pause")
    await_("it is paused", lambda: captures.task("query")["stage"] == "Paused")
    assert captures.ordered().state == "done"
    captures.write()
    captures.task("resume")
    captures.await_equal()


DEATHS = (
    "after-chunk=kill:3",
    "before-load=kill:1",
    "after-load-one=kill:1",
    "before-first-rows=kill:1",
    "after-first-progress=kill:1",
    "after-first-rows=kill:1",
)


@pytest.mark.more  # by one process, each step: test_table_reload
def test_the_leader_dies_at_each_step(captures: Captures) -> None:
    first = captures.start()
    captures.create("&chunk-rows=50&connections=1")
    captures.hold("s")
    first.end()
    captures.order()
    for point in DEATHS:
        captures.start(point).await_exit()
        captures.write()
    captures.start()
    captures.await_equal()
    captures.await_done()
    await_("both replicate", lambda: captures.states() == {"replicating"})
    await_("the unit follows", lambda: captures.task("query")["stage"] == "Running")
