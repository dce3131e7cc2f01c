"""`tidelake table reload` where captures of a cluster replicate the database, for a job's task or
for a changefeed of none."""

from __future__ import annotations

import shutil
import time

import pytest

from streaming.spans.cluster_reloads import LOOK_EVERY_S
from tests.acceptance.copied_database import ACCOUNT
from tests.acceptance.processes import await_
from tests.acceptance.reloading_captures import HELD, NAME, Captures

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb, pytest.mark.etcd]


def test_a_task_that_cannot_go_on_does_and_a_paused_one_waits_for_its_operator(
    captures: Captures,
) -> None:
    captures.start()
    captures.create(**{"on-unknown-values": "reload"})
    captures.task("pause")
    await_("it is paused", lambda: captures.task("query")["stage"] == "Paused")
    shutil.move(captures.lake / NAME / HELD.table, captures.lake.parent / "moved")
    captures.task("resume")
    await_("the error", lambda: "table reload" in (captures.task("query")["error"] or ""))
    captures.write()
    captures.order()
    captures.await_done()
    captures.await_equal()
    await_("no error", lambda: captures.task("query")["error"] is None)
    captures.task("pause")
    await_("it is paused again", lambda: captures.task("query")["stage"] == "Paused")
    assert "as soon as the changefeed or task is resumed" in captures.order()
    captures.write()
    time.sleep(2 * LOOK_EVERY_S)
    assert captures.ordered().state == "ordered"
    captures.task("resume")
    captures.await_done()
    captures.await_equal()
    await_("the unit follows", lambda: captures.task("query")["stage"] == "Running")
    captures.server.execute(f"ALTER TABLE {HELD} ADD COLUMN s INT AS (v * 2) STORED")
    captures.write()  # and it is loaded by itself
    captures.await_equal()
    assert captures.ordered().ddl_ts is not None


def test_a_changefeed_that_copied_nothing_gets_a_table_whole(captures: Captures) -> None:
    captures.start()
    ((file, position, *_),) = captures.server.query("SHOW MASTER STATUS")
    uri = f"mysql://{ACCOUNT}@{captures.server.host}:{captures.server.port}/?task-mode=incremental"
    captures.created(f"{uri}&binlog-name={file}&binlog-pos={position}")
    captures.write()
    await_("both are there", lambda: len(captures.rows()) == 2)
    await_("a place is stored", captures.has_read)
    captures.order()
    captures.await_done()
    captures.write()
    captures.await_equal(HELD)
