"""A changefeed that has begun keeps the kind of its commit-ts: TiCDC's, or its reader's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordination.errors import ConfigError
from streaming.owner.start_point import first_row, settled_row
from tests.streaming.owner.test_start_point import CHANGEFEED, LOG, SHAPE, ran_to


def test_a_changefeed_that_has_begun_keeps_the_kind_of_its_numbers() -> None:
    """A rewind is no way out either: tables remember their DDLs by the numbers that these had."""
    numbered = replace(CHANGEFEED, source=replace(CHANGEFEED.source, is_numbered=True))
    again = replace(CHANGEFEED, source=replace(CHANGEFEED.source, partition_num=3))
    for one, other in ((numbered, CHANGEFEED), (CHANGEFEED, numbered)):
        row = settled_row(ran_to(100, one), one, SHAPE, LOG)
        for wanted in (other, replace(other, overwrite_checkpoint_ts=50)):
            with pytest.raises(ConfigError, match="another changefeed-id and another sink-uri"):
                settled_row(row, wanted, SHAPE, LOG)
    begun = settled_row(ran_to(100), CHANGEFEED, SHAPE, LOG)
    assert settled_row(begun, again, SHAPE, LOG).checkpoint_ts == 100
    assert settled_row(first_row(CHANGEFEED), numbered, SHAPE, LOG).state == "running"
