"""A table is brought back while its changefeed runs to a target-ts."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.acceptance.reported import at
from tests.acceptance.small_tables import MakeLives
from tests.acceptance.test_brought_back import LAST, Messages, Target

pytestmark = pytest.mark.spark


def test_a_target_ts_is_not_waited_for(new_lives: MakeLives, spark: SparkSession) -> None:
    """A run to a target-ts ends with the reason, when the other tables are there."""
    wanted, lives = Messages(), new_lives(1, partitions=None)
    target = Target(spark, lives)
    lives.produce(wanted.first)
    lives.finish(target_ts=at(4) - 1)
    version = target.version
    lives.produce(wanted.second)
    lives.finish(target_ts=at(9) - 1)
    target.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {version}")
    lives.produce(wanted.third)
    error = lives.live(target_ts=LAST)
    assert f"--overwrite-checkpoint-ts {at(4) - 1}" in str(error)
    assert len(lives.rows("u")) == 3
    lives.finish(target_ts=LAST, overwrite_checkpoint_ts=at(4) - 1)
    assert len(lives.rows("t")) == 4
