"""An owner's reader that closes amid what it reads by itself."""

from __future__ import annotations

import pytest

from coordination.errors import Stop
from tests.streaming.owner.test_ddl_reader import PARTITIONS, READS, STEP, Ground


@pytest.fixture
def ground() -> Ground:
    return Ground()


def test_a_reader_that_closes_does_not_read_the_rest_of_a_backlog(ground: Ground) -> None:
    """Of a changefeed that was paused, it went on for as long as that takes."""
    ground.backlog()
    ground.reader.submit(dict.fromkeys(PARTITIONS, READS))
    ground.reader.close()
    ground.reader.catch_up(dict.fromkeys(PARTITIONS, 0), STEP)
    assert ground.reader._unplanned.waiting_reads == 1
    assert not ground.reader._is_caught_up


def test_a_reader_that_closes_ends_its_look_for_what_a_table_is(ground: Ground) -> None:
    """Who leaves the stream waits for it."""
    ground.backlog()
    ground.reader.submit(dict.fromkeys(PARTITIONS, READS))
    ground.reader.catch_up(dict.fromkeys(PARTITIONS, 0), STEP)
    ground.reader.close()
    with pytest.raises(Stop):
        ground.resolve()
    assert not ground.known
