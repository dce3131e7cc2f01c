"""Books that balance at every moment, by one writer without Spark, through every form of a table,
deaths, zombies and rewinds to below DDLs: hundreds of histories."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.acceptance.books import Books
from tests.acceptance.books_reader import BooksReader
from tests.seeds import hunted_seeds
from tests.shop.feed import FeedSettings, messages
from tests.streaming.one_writer import OneWriter


def live(seed: int, folder: Path, *, transactions: int) -> None:
    books = Books(seed, transactions=transactions)
    feed = messages(books.events(), FeedSettings(seed=seed, watermark_every=3, replay_every=9))
    warehouse = folder / "warehouse"
    writer = OneWriter(feed, warehouse, random.Random(seed), books.rules)
    try:
        writer.run(most_deaths=seed % 3 * 8, most_zombies=seed % 4 * 2, most_rewinds=seed % 5 * 2)
    except Exception as error:
        raise AssertionError(f"seed {seed}") from error
    print(
        f"seed {seed}: {len(writer.cuts)} cuts, {len(books.ddls)} DDLs, {writer.deaths} deaths,"
        f" rewinds {writer.rewinds}"
    )
    reader = BooksReader(books, warehouse)
    assert reader.check(writer.cuts)
    reader.check_now(books.last_ts)
    reader.check_ddls(books.last_ts)
    assert not writer.letters, f"seed {seed}: {writer.letters[:3]}"


@pytest.mark.parametrize("seed", [10006, pytest.param(10011, marks=pytest.mark.more)])
def test_every_moment_balances(seed: int, tmp_path: Path) -> None:
    """With partitions that are removed, and logs and histories that are renamed, before a rewind to
    below."""
    live(seed, tmp_path, transactions=120)


@pytest.mark.soak
def test_every_moment_of_many_balances(tmp_path: Path) -> None:
    for seed in hunted_seeds(100):
        folder = tmp_path / str(seed)
        live(seed, folder, transactions=120)
        shutil.rmtree(folder)
