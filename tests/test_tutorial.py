"""The commands of docs/tutorial.md are run as they stand there, and print what it shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from coordination.etcd.embedded import free_ports
from tests.acceptance.processes import JVM_OPTIONS
from tests.services.database_editions import MARIADB_10_11
from tests.services.database_server import needs
from tests.services.kafka_broker import REPOSITORY

pytestmark = [pytest.mark.acceptance, pytest.mark.kafka, pytest.mark.etcd]

PAGE = (REPOSITORY / "docs/tutorial.md").read_text(encoding="utf-8")
WITH_TICDC, WITHOUT_TICDC = (
    re.findall(r"```console\n(.*?)```", half, re.DOTALL)
    for half in PAGE.split("## 10. A database without TiCDC")
)
NOT_RUN = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
ASKS = (
    *("orders", "tidelake progress", "tidelake snapshot", "tidelake dead-letters list"),
    "tidelake diff",
)
WAITS = "tidelake progress --wait"
PATIENCE_S = 60.0
END = "-- the command has ended --"


class Step(NamedTuple):
    command: str
    shown: list[str]


def steps(block: str) -> Iterator[Step]:
    """``$`` begins a command, ``>`` goes on with it, the other lines are what it prints."""
    for each in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        first, *lines = each.splitlines()
        more = [line[2:] for line in lines if line.startswith("> ")]
        yield Step("\n".join([first, *more]), lines[len(more) :])


def is_shown(shown: list[str], printed: str) -> bool:
    """Each line as it is, in this order, perhaps with others between; ``…`` is any text."""
    lines = iter(" ".join(line.split()) for line in printed.splitlines())
    return all(any(_matches(each, line) for line in lines) for each in shown)


def _matches(shown: str, line: str) -> bool:
    words = " ".join(shown.split())
    return bool(re.fullmatch(re.escape(words).replace(r"\ …\ ", " .*").replace("…", ".*"), line))


class Shell:
    """One bash for the whole page, as its reader has one."""

    def __init__(self, env: dict[str, str]) -> None:
        self._bash = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=REPOSITORY,
            env=env,
            start_new_session=True,
        )

    def run(self, command: str) -> str:
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{command}\necho; echo '{END}'\n")
        self._bash.stdin.flush()
        printed: list[str] = []
        bound = threading.Timer(2 * PATIENCE_S, self._kill)  # a loop of the page may not end
        bound.start()
        try:
            for line in self._bash.stdout:
                if line.strip() == END:
                    return "".join(printed)
                printed.append(line)
        finally:
            bound.cancel()
        raise AssertionError(f"bash has ended at {command!r}: {''.join(printed)}")

    def _kill(self) -> None:
        os.killpg(self._bash.pid, signal.SIGKILL)

    def end(self) -> None:
        """Background jobs too: a test that fails amid the page leaves none."""
        if self._bash.poll() is not None:
            return
        self.run("kill $RUN $TIDB $DATABASE 2> /dev/null; wait")
        self.run("[ -z $LAKE ] || rm -rf $LAKE $LAKE.*")  # else .*, the .git of this tree too
        self._bash.communicate()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    kafka, sql = free_ports(2)
    shell = Shell(
        {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "TMPDIR": str(tmp_path),
            "TOY_KAFKA_PORT": str(kafka),
            "TOY_SQL_PORT": str(sql),
            "JDK_JAVA_OPTIONS": JVM_OPTIONS,
        }
    )
    shell.run("shopt -u huponexit")
    try:
        yield shell
    finally:
        shell.end()


def test_every_command_prints_what_the_page_shows(shell: Shell) -> None:
    kafka = shell.run("echo $TOY_KAFKA_PORT").strip()
    follow(shell, [each.replace("127.0.0.1:9092", f"127.0.0.1:{kafka}") for each in WITH_TICDC])


@pytest.mark.mariadb
@pytest.mark.more
def test_every_command_about_a_database_does_so_too(shell: Shell) -> None:
    needs(MARIADB_10_11)
    follow(shell, WITHOUT_TICDC)


def follow(shell: Shell, blocks: list[str]) -> None:
    for block in blocks:
        has_waited = False  # what comes behind a wait in its block is there at once
        for command, shown in steps(block):
            deadline = time.monotonic() + PATIENCE_S
            printed = shell.run(command)
            has_waited = has_waited or command.startswith(WAITS)
            while not is_shown(shown, printed):
                asked_once = has_waited or not command.startswith(ASKS)
                assert not asked_once, f"{command}\nprinted\n{printed}"
                assert time.monotonic() < deadline, f"{command}\nprinted\n{printed}"
                time.sleep(0.5)
                printed = shell.run(command)


def test_only_the_set_up_is_not_run() -> None:
    (block,) = NOT_RUN
    assert re.findall(r"^(.*?) *(?:#.*)?$", block, re.MULTILINE)[:2] == [
        "make setup",
        "source .venv/bin/activate",
    ]


def test_a_line_is_compared_by_its_words() -> None:
    assert is_shown(["a  …  c", "d"], "x\na   b c\n\nd\n")
    assert not is_shown(["d", "a"], "a\nd\n")
    assert not is_shown(["a b"], "a c\n")
