"""The network to a database is silent for longer than a read waits, and the disk of a copy is full:
the same process goes on, and at the end all cells are the database's own."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance import bank, copied_bank
from tests.acceptance.binlog_stage import BinlogStage, end_of_log
from tests.acceptance.processes import await_
from tests.acceptance.test_first_copy import PARAMETERS, compare
from tests.services.database_editions import MARIADB_10_11
from tests.services.database_server import DatabaseServer
from tests.services.tcp_gate import TcpGate

pytestmark = [pytest.mark.acceptance, pytest.mark.mariadb, pytest.mark.soak]

SILENT_S = 60.0


def test_a_minute_without_a_network(tmp_path: Path) -> None:
    """Amid the copy, and again in the stream."""
    with (
        DatabaseServer(MARIADB_10_11) as server,
        TcpGate(server.port) as gate,
        BinlogStage(server, tmp_path, rules=copied_bank.RULES, mode="all") as stage,
    ):
        copied_bank.opened(server)
        slow = {"TIDELAKE_FAILPOINTS": "after-chunk=stop:9"}
        life = stage.start("first", port=gate.port, parameters=PARAMETERS, given=slow)
        await_("the copy stands still", lambda: life.is_frozen or life.is_over)
        gate.shut()
        life.signal(signal.SIGCONT)
        time.sleep(SILENT_S)
        gate.open()
        stage.await_position(end_of_log(server), life)
        with bank.Teller(server, 1) as teller:
            time.sleep(2)
            gate.shut()
            time.sleep(SILENT_S)
            teller.stop()
        assert teller.committed > 10
        gate.open()
        stage.await_position(end_of_log(server), life)
        life.signal(signal.SIGTERM)
        assert life.await_exit() == 0, life.tail()
        compare(stage)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "warehouse"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_is_full_while_tables_are_copied(small_disk: Path, tmp_path: Path) -> None:
    with (
        DatabaseServer(MARIADB_10_11) as server,
        BinlogStage(server, tmp_path, rules=copied_bank.RULES, mode="all") as stage,
    ):
        copied_bank.opened(server)
        frozen = {"TIDELAKE_FAILPOINTS": "after-chunk=stop:5"}
        life = stage.start("first", parameters=PARAMETERS, given=frozen)
        await_("the copy stands still", lambda: life.is_frozen or life.is_over)
        ballast = small_disk / "ballast"
        free = shutil.disk_usage(small_disk).free
        with ballast.open("wb") as file:
            file.write(bytes(max(0, free - 4096)))
        life.signal(signal.SIGCONT)
        life.await_line("no room in the staging folder")
        time.sleep(5)
        ballast.unlink()
        if life.is_over:  # it has said so, and the next life goes on
            life = stage.start("second", parameters=PARAMETERS)
        stage.await_position(end_of_log(server), life)
        snapshots = stage.warehouse / "_tidelake" / "snapshots"
        await_("a snapshot", lambda: life.is_over or (snapshots.exists() and stage.cuts()))
        life.signal(signal.SIGTERM)
        assert life.await_exit() == 0, life.tail()
        compare(stage)
