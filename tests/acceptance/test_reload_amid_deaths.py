"""`tidelake table reload` in a cluster where the capture dies that has the table: in the end the
table is exact."""

from __future__ import annotations

import pytest

from tests.acceptance.processes import await_
from tests.acceptance.reloading_captures import HELD, SLOW, Captures

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb, pytest.mark.etcd]


def test_a_held_table_goes_on_though_a_capture_dies(captures: Captures) -> None:
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
