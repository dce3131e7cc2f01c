"""The real program on a folder that grows, killed again and again: a writer as TiCDC's storage
sink, which crashes and goes back, and half of whose files are being written."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.processes import ON_THREADS, await_
from tests.services.delta_rows import read_rows
from tests.services.kafka_broker import REPOSITORY
from tests.services.storage_writer import StorageWriter

pytestmark = pytest.mark.acceptance

CONFIG = """
[[sink.tables]]
matcher = ["shop.log"]
write-mode = "append"
"""
OPS = {"insert": "I", "update_postimage": "U", "delete": "D"}


class Feed:
    """Writes for as long as it runs."""

    def __init__(self, writer: StorageWriter) -> None:
        self._writer = writer
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.02):
            for _ in range(3):
                self._writer.step()


def run(folder: Path, more: str) -> subprocess.Popen[bytes]:
    config = folder / "changefeed.toml"
    config.write_text(CONFIG)
    uri = f"file://{folder}/cdc?protocol=csv&include-commit-ts=true{more}"
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", ON_THREADS, "run", "--source-uri", uri),
                *("--sink-uri", f"delta://{folder}/lake", "--config", str(config)),
            ],
            cwd=REPOSITORY,
            stderr=log,
            start_new_session=True,
        )


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    path = folder / "lake" / "shop" / table
    return read_rows(path) if any((path / "_delta_log").glob("0*.json")) else []


def events(folder: Path) -> Counter[tuple[str, int, int, int]]:
    return Counter(
        (OPS[each["_op"]], each["_commit_ts"], each["id"], each["n"])
        for each in rows(folder, "log")
        if each["_op"] != "update_preimage"
    )


def kill(life: subprocess.Popen[bytes]) -> None:
    if life.poll() is None:
        os.killpg(life.pid, signal.SIGKILL)
        life.wait()


SOAK = pytest.mark.soak


@pytest.mark.parametrize(
    ("is_classic", "has_old", "dispatchers", "kills"),
    [
        pytest.param(False, True, 0, 1, marks=pytest.mark.more),
        pytest.param(True, False, 0, 6, marks=SOAK),
        pytest.param(True, True, 0, 6, marks=SOAK),
        pytest.param(False, False, 2, 6, marks=SOAK),
    ],
)
def test_each_change_of_a_folder_is_applied_once_whenever_the_program_is_killed(
    tmp_path: Path, is_classic: bool, has_old: bool, dispatchers: int, kills: int
) -> None:
    dice = random.Random(kills)
    writer = StorageWriter(
        tmp_path / "cdc",
        random.Random(dispatchers + 2 * is_classic + 4 * has_old),
        lambda: int(time.time() * 1e3),
        is_classic=is_classic,
        has_old=has_old,
        dispatchers=dispatchers,
    )
    feed, more = Feed(writer), "&output-old-value=true" if has_old else ""
    life = run(tmp_path, more)

    def await_more() -> None:
        before = len(rows(tmp_path, "log"))

        def has_more() -> bool:
            assert life.poll() is None, (tmp_path / "log").read_text()[-5_000:]
            return len(rows(tmp_path, "log")) > before

        await_("a commit", has_more, within_s=120)

    try:
        for _ in range(kills):
            await_more()
            time.sleep(dice.uniform(0.0, 1.5))
            kill(life)
            life = run(tmp_path, more)
        await_more()
        feed.stop()
        writer.finish()
        wanted = Counter((c.op, c.ts, c.key, c.n) for c in writer.changes["log"] if c.op)
        await_("all", lambda: events(tmp_path).total() >= wanted.total())
        assert events(tmp_path) == wanted
        await_("last", lambda: {r["id"]: r["n"] for r in rows(tmp_path, "t")} == writer.rows["t"])
        life.terminate()
        assert life.wait(60) == 0
    finally:
        feed.stop()
        kill(life)
        print((tmp_path / "log").read_text()[-8_000:])
