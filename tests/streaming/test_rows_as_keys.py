"""A table by all its columns, by one writer without Spark: many histories, with deaths, late
writers and rewinds."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from conf.settings import TableRule
from sinks.target.target_table import inspect
from tests.acceptance.rows_as_keys import NAME, SCHEMA, RowsAsKeys, ordered
from tests.seeds import hunted_seeds
from tests.services.delta_rows import read_rows
from tests.shop.history import START_TS
from tests.streaming.one_writer import OneWriter

RULES = (TableRule(matcher=("shop.*",), key="all-columns"),)


def live(seed: int, folder: Path, *, transactions: int) -> int:
    dice = random.Random(seed)
    history = RowsAsKeys(seed, transactions=transactions, first_ts=START_TS, tick=1 << 18)
    writer = OneWriter(history.messages, folder / "warehouse", dice, RULES)
    uri = folder / "warehouse" / SCHEMA / NAME

    def check() -> None:
        assert ordered(read_rows(uri)) == ordered(history.rows_at(history.last_ts))
        for cut in writer.cuts:
            version, ts = cut["tables"][f"{SCHEMA}.{NAME}"], cut["primary_ts"]
            assert ordered(read_rows(uri, version)) == ordered(history.rows_at(ts)), ts
        assert not writer.letters, writer.letters[:3]
        state = inspect(str(uri), {})
        assert state is not None
        assert state.rekeyed_ts == 0  # a rewind goes below every DDL

    try:
        writer.run(most_deaths=seed % 3 * 8, most_zombies=seed % 4 * 2, most_rewinds=seed % 3)
        check()
        for _ in range(3):
            writer.rewind()
            writer.run(most_deaths=writer.deaths + seed % 3 * 4, most_zombies=seed % 2)
            check()
    except Exception as error:
        raise AssertionError(f"seed {seed}: {history.kinds}, {writer.rewinds}") from error
    print(
        f"seed {seed}: {len(writer.cuts)} cuts, {writer.deaths} deaths, {len(writer.rewinds)} "
        f"rewinds, {' '.join(history.kinds)}"
    )
    return len(writer.cuts)


def test_every_moment_is_what_its_events_say(tmp_path: Path) -> None:
    cuts = 0
    for seed in range(10_000, 10_004):
        folder = tmp_path / str(seed)
        cuts += live(seed, folder, transactions=60)
        shutil.rmtree(folder)
    assert cuts


@pytest.mark.soak
def test_every_moment_of_many(tmp_path: Path) -> None:
    for seed in hunted_seeds(100):
        folder = tmp_path / str(seed)
        live(seed, folder, transactions=120)
        shutil.rmtree(folder)
