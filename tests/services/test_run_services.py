"""Services of a whole run: of one process, and of those beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import psutil
import pytest

from tests.services.child_process import end_child, start_child
from tests.services.run_services import (
    BorrowedServices,
    Kind,
    OwnedServices,
    ServiceGone,
    Services,
)

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Sleeper:
    process: subprocess.Popen[bytes]

    def end(self) -> None:
        end_child(self.process)


@contextmanager
def sleeper() -> Iterator[Sleeper]:
    made = Sleeper(start_child(["sleep", "600"]))
    yield made
    made.end()


@contextmanager
def broken() -> Iterator[None]:
    raise OSError("no port is free")
    yield


KINDS = {"sleeper": Kind(sleeper, lambda _: "good\nnight\n"), "broken": Kind(broken)}


@pytest.fixture
def owned() -> Iterator[OwnedServices]:
    services = OwnedServices(KINDS)
    yield services
    services.close()


@pytest.fixture(params=["here", "there"])
def services(request: pytest.FixtureRequest, owned: OwnedServices) -> Services:
    return owned if request.param == "here" else BorrowedServices(owned.address())


def pid_of(address: str) -> int:
    found = BorrowedServices(address).ask("sleeper")
    return int(found.process.pid)


def test_whoever_asks_gets_the_same(owned: OwnedServices) -> None:
    address = owned.address()
    with ThreadPoolExecutor(8) as threads:
        pids = {*threads.map(pid_of, [address] * 16), owned.ask("sleeper").process.pid}
    (pid,) = pids
    owned.close()
    assert not psutil.pid_exists(pid)


def test_one_that_asked_and_was_killed_takes_nothing_with_it(owned: OwnedServices) -> None:
    address = owned.address()
    asks = get_context("spawn").Process(target=pid_of, args=(address,))
    asks.start()
    pid = pid_of(address)
    asks.kill()
    asks.join()
    assert psutil.pid_exists(pid)
    assert pid_of(address) == pid
    assert owned.ended("sleeper") is None


def test_a_copy_cannot_end_it(services: Services) -> None:
    with pytest.raises(TypeError, match="one that breaks it starts its own"):
        services.ask("sleeper").end()
    assert services.ended("sleeper") is None


def test_one_that_has_ended_is_named(services: Services) -> None:
    pid = services.ask("sleeper").process.pid
    os.kill(pid, signal.SIGKILL)
    said = f"the run's sleeper (pid {pid}) has ended with -9; its log ends 'night'"
    while services.ended("sleeper") is None:
        pass
    assert services.ended("sleeper") == said
    with pytest.raises(ServiceGone) as caught:
        services.ask("sleeper")
    assert str(caught.value) == said


def test_one_that_does_not_start_is_told_to_each_who_asks(services: Services) -> None:
    for _ in range(2):
        with pytest.raises(ServiceGone, match=r"^the run's broken did not start: no port is free$"):
            services.ask("broken")


OWNS = """
import time
from tests.services.run_services import OwnedServices
from tests.services.test_run_services import KINDS
print(OwnedServices(KINDS).ask("sleeper").process.pid, flush=True)
time.sleep(600)
"""


def test_it_ends_with_its_owner_however_that_ends() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNS], stdout=subprocess.PIPE, cwd=ROOT)
    assert owner.stdout is not None
    service = psutil.Process(int(owner.stdout.readline()))
    owner.kill()
    owner.communicate()
    assert psutil.wait_procs([service], timeout=30)[1] == []
