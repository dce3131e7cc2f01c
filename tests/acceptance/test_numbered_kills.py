"""Messages without a commit-ts, against a real broker and the real program, which is killed: every
change is applied once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.processes import JVM_OPTIONS, await_
from tests.services.delta_rows import read_rows
from tests.services.kafka_broker import REPOSITORY, KafkaBroker

pytestmark = [pytest.mark.acceptance, pytest.mark.kafka]

KEYS = 40
TYPES = {"id": "bigint", "at": "bigint"}
CONFIG = """
[[sink.tables]]
matcher = ["shop.log"]
write-mode = "append"
"""


def message(table: str, kind: str, row: dict[str, int], at_ms: int, **more: object) -> bytes:
    data = [{name: str(value) for name, value in row.items()}]
    told = {
        "id": 0, "database": "shop", "table": table, "pkNames": ["id"], "isDdl": False,
        "type": kind, "es": at_ms, "ts": at_ms, "sql": "", "sqlType": {}, "mysqlType": TYPES,
        "old": data if kind == "UPDATE" else None, "data": data,
    }  # fmt: skip
    return json.dumps({**told, **more}, separators=(",", ":")).encode()


class Shop:
    """Writes for as long as it runs. ``last``: by key what it wrote last; ``sent``: every change.
    Partition 0 has only DDLs and is idle from then on; what partition 2 has is two seconds old."""

    def __init__(self, broker: KafkaBroker, topic: str) -> None:
        self.last: dict[int, int] = {}
        self.sent: Counter[tuple[int, int]] = Counter()
        self._broker, self._topic = broker, topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        broker.create_topic(topic, partitions=3)
        columns = "(id BIGINT PRIMARY KEY, at BIGINT)"
        ddls = [f"CREATE TABLE {name} {columns}" for name in ("t", "log")]
        at_ms = int(time.time() * 1e3) - 5_000
        made = [
            message(text.split()[2], "CREATE", {}, at_ms, isDdl=True, data=None, sql=text)
            for text in ddls
        ]
        broker.produce(topic, [(0, None, each) for each in made])
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        dice, number = random.Random(1), 0
        while not self._over.wait(0.05):
            found = list(self._some(dice, number))
            number += len(found)
            self._broker.produce(self._topic, found)

    def _some(self, dice: random.Random, number: int) -> Iterator[tuple[int, None, bytes]]:
        for n in range(number, number + 2 * dice.randint(1, 20), 2):
            key = dice.randrange(KEYS)
            partition = 1 + key % 2
            at_ms = int(time.time() * 1e3) - 2_000 * (partition - 1)
            kind = "UPDATE" if key in self.last else "INSERT"
            self.last[key] = n
            self.sent[key, n] += 1
            for table in ("t", "log"):
                yield partition, None, message(table, kind, {"id": key, "at": n}, at_ms)


def run(broker: KafkaBroker, topic: str, folder: Path) -> subprocess.Popen[bytes]:
    config = folder / "changefeed.toml"
    config.write_text(CONFIG)
    uri = f"kafka://{broker.bootstrap}/{topic}?protocol=canal-json&at-least-once=true"
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "streaming.cli.main", "run", "--source-uri", uri),
                *("--sink-uri", f"delta://{folder}/lake", "--config", str(config)),
            ],
            cwd=REPOSITORY,
            env={**os.environ, "JDK_JAVA_OPTIONS": JVM_OPTIONS},
            stderr=log,
            start_new_session=True,
        )


def rows(folder: Path, table: str) -> list[dict[str, int]]:
    path = folder / "lake" / "shop" / table
    found = read_rows(path) if any((path / "_delta_log").glob("*.json")) else []
    return [each for each in found if each.get("_op") != "update_preimage"]


def await_more(life: subprocess.Popen[bytes], folder: Path, before: int) -> None:
    def has_more() -> bool:
        assert life.poll() is None, (folder / "log").read_text()[-5_000:]
        return len(rows(folder, "log")) > before

    try:
        await_("a commit", has_more, within_s=90)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{(folder / 'log').read_text()[-8_000:]}") from None


@pytest.mark.parametrize(
    "kills",
    [pytest.param(1, marks=pytest.mark.more), pytest.param(5, marks=pytest.mark.soak)],
)
def test_each_change_is_applied_once_whenever_the_program_is_killed(
    broker: KafkaBroker, tmp_path: Path, kills: int
) -> None:
    topic = f"numbered-{kills}"
    dice, shop = random.Random(2), Shop(broker, topic)
    life = run(broker, topic, tmp_path)
    try:
        for _ in range(kills):
            before = len(rows(tmp_path, "log"))
            await_more(life, tmp_path, before)
            time.sleep(dice.uniform(0.0, 1.5))
            os.killpg(life.pid, signal.SIGKILL)
            life.wait()
            life = run(broker, topic, tmp_path)
        before = len(rows(tmp_path, "log"))
        await_more(life, tmp_path, before)
        shop.stop()
        await_("all", lambda: len(rows(tmp_path, "log")) >= shop.sent.total())
        await_("last", lambda: {r["id"]: r["at"] for r in rows(tmp_path, "t")} == shop.last)
        assert Counter((each["id"], each["at"]) for each in rows(tmp_path, "log")) == shop.sent
        life.terminate()
        assert life.wait(60) == 0
    finally:
        shop.stop()
        if life.poll() is None:
            os.killpg(life.pid, signal.SIGKILL)
    said = (tmp_path / "log").read_text()
    assert "at-least-once: the messages have neither a commit-ts nor watermarks" in said
