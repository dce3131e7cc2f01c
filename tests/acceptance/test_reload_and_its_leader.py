"""`tidelake table reload` in a cluster whose leader dies amid it: in the end the table is exact."""

from __future__ import annotations

import pytest

from tests.acceptance.processes import await_
from tests.acceptance.reloaded_table import DEATHS
from tests.acceptance.reloading_captures import SLOW, Captures

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb, pytest.mark.etcd]


def test_a_held_table_goes_on_though_the_leader_dies(captures: Captures) -> None:
    for _ in range(2):
        captures.start()
    captures.create(SLOW)
    captures.hold("s")
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


@pytest.mark.more  # by one process, each step: test_table_reload_amid_deaths
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
