"""A pause amid `tidelake table reload` in a cluster."""

from __future__ import annotations

import pytest

from tests.acceptance.processes import await_
from tests.acceptance.reloading_captures import SLOW, Captures

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb, pytest.mark.etcd]


def test_a_task_that_is_paused_amid_a_reload_is_paused_behind_it(captures: Captures) -> None:
    captures.start()
    captures.create(SLOW)
    await_("the unit follows", lambda: captures.task("query")["stage"] == "Running")
    captures.order()
    await_("it copies", lambda: captures.ordered().rows > 0)
    captures.task("pause")
    await_("it is paused", lambda: captures.task("query")["stage"] == "Paused")
    assert captures.ordered().state == "done"
    captures.write()
    captures.task("resume")
    captures.await_equal()
