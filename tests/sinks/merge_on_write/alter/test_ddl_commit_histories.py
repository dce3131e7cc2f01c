"""A property over random histories with DDLs: every reader sees the model's rows, after each."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.seeds import hunted_seeds
from tests.sinks.merge_on_write.altering import AlteredHistory

STEPS = 16
GROUP = 8  # histories a test


def live(seed: int, folder: Path) -> AlteredHistory:
    history = AlteredHistory(seed=seed, folder=folder)
    try:
        for _ in range(STEPS):
            history.step()
            history.check()
            if history.dice.random() < 0.2:
                history.check_filters()
        history.check_states()
        history.check_filters()
        history.check_kept()
    finally:
        history.close()
    return history


@pytest.mark.parametrize("group", [0, pytest.param(1, marks=pytest.mark.more)])
def test_delta_rs_reads_the_model(group: int, tmp_path: Path) -> None:
    for seed in range(group * GROUP, (group + 1) * GROUP):
        live(seed, tmp_path)


@pytest.mark.soak
def test_delta_rs_reads_the_model_of_many(tmp_path: Path) -> None:
    for seed in hunted_seeds(1000):
        folder = tmp_path / str(seed)
        live(seed, folder)
        shutil.rmtree(folder)
