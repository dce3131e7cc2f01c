"""A property over random histories: every reader sees the model's rows, after every commit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.seeds import hunted_seeds
from tests.sinks.merge_on_write.histories import History

STEPS = 12
GROUP = 10  # histories a test


def live(seed: int, folder: Path) -> History:
    history = History(seed=seed, folder=folder)
    try:
        for _ in range(STEPS):
            history.step()
            history.check()
        history.check_states()
        history.check_filters()
    finally:
        history.close()
    return history


@pytest.mark.parametrize(
    "group", [0, 1, *(pytest.param(n, marks=pytest.mark.more) for n in (2, 3))]
)
def test_delta_rs_reads_the_model(group: int, tmp_path: Path) -> None:
    for seed in range(group * GROUP, (group + 1) * GROUP):
        live(seed, tmp_path)


@pytest.mark.soak
def test_delta_rs_reads_the_model_of_many(tmp_path: Path) -> None:
    for seed in hunted_seeds(2000):
        folder = tmp_path / str(seed)
        live(seed, folder)
        shutil.rmtree(folder)
