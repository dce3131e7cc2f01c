"""Threads and processes that claim terms of one changefeed side by side."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coordination.errors import TermRefused
from sinks.control.changefeeds import ChangefeedRow, Changefeeds
from tests.sinks.control.test_changefeeds import claim, owner


def test_eight_threads_claim_eight_different_terms(tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def run(number: int) -> tuple[Changefeeds, ChangefeedRow]:
        changefeeds = Changefeeds(str(tmp_path))
        start.wait()
        return changefeeds, claim(changefeeds, owner(f"c{number}"))

    with ThreadPoolExecutor(8) as pool:
        claims = list(pool.map(run, range(8)))
    assert sorted(row.term for _, row in claims) == list(range(1, 9))
    for changefeeds, row in claims:
        if row.term == 8:
            changefeeds.save(row)
        else:
            with pytest.raises(TermRefused):
                changefeeds.save(row)


def claim_in_a_process(warehouse: str, capture: str, out: multiprocessing.Queue) -> None:
    changefeeds = Changefeeds(warehouse)
    out.put([claim(changefeeds, owner(capture)).term for _ in range(10)])


def test_two_processes_never_share_a_term(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    out = spawn.Queue()
    workers = [
        spawn.Process(target=claim_in_a_process, args=(str(tmp_path), name, out))
        for name in ("a", "b")
    ]
    for worker in workers:
        worker.start()
    terms = out.get(timeout=300) + out.get(timeout=300)
    for worker in workers:
        worker.join(300)
    out.close()
    assert sorted(terms) == list(range(1, 21))
