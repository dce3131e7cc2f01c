"""Which worker of `make test` runs what, and when.

Four workers share two cores, as half of what the tests do is to wait: for a lease that ends, for a
process that starts. The queue is

    lives of the program over Spark | what starts processes, the longest first |
    other modules | the simulation | the rest of Spark

and three workers take from its head, the last from its end; they meet in the middle, at short
modules. Two have a Spark: what lives load and compile in its JVM, reads of a stream, and what the
rest does, queries, have little in common.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

ROOT = Path(__file__).resolve().parents[1]
FROM_THE_HEAD = 3  # workers
LIVES, QUERIES = "lives over Spark", "the rest of Spark"
# Lives between statements of an operator's Spark.
QUERYING = ("tests/acceptance/test_brought_back.py", "tests/acceptance/test_table_errors.py")
LONGEST = (
    "tests/acceptance/test_hung_jvm.py",
    "tests/acceptance/test_stop_and_takeover.py",
    "tests/acceptance/test_sleep_and_takeover.py",
    "tests/acceptance/test_cluster.py",
    "tests/acceptance/test_outages.py",
    "tests/acceptance/test_restarts.py",
)
LAST = "tests/simulation/test_simulation.py"


def marked_spark() -> Iterator[str]:
    """Node IDs: of a module, or of a test or class in one that is not Spark's as a whole."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        module, text = path.relative_to(ROOT).as_posix(), path.read_text()
        if re.search(r"^pytestmark = .*mark\.spark\b", text, re.MULTILINE):
            yield module
        marked = r"^@pytest\.mark\.spark\n(?:@.*\n)*(?:def|class) (\w+)"
        for name in re.findall(marked, text, re.MULTILINE):
            yield f"{module}::{name}"


SPARKS = frozenset(marked_spark())


def is_sparks(nodeid: str) -> bool:
    module, _, test = nodeid.partition("::")
    (name,) = re.findall(r"^\w+", test)
    return not SPARKS.isdisjoint((module, f"{module}::{name}"))


def scope_of(nodeid: str) -> str:
    """What is handed out as one. (xdist's own groups do not reach pytest 9's node IDs.)"""
    module = nodeid.partition("::")[0]
    is_acceptance = module.startswith("tests/acceptance/")
    if is_sparks(nodeid):
        if not is_acceptance or module in QUERYING:
            return QUERIES
        return LIVES
    return nodeid if is_acceptance or module == LAST else module


def in_turn(items: list[pytest.Item]) -> None:
    """Sort them as the queue has them."""

    def turn(item: pytest.Item) -> int:
        module, scope = item.nodeid.partition("::")[0], scope_of(item.nodeid)
        if scope in (LIVES, QUERIES):
            return {LIVES: 0, QUERIES: 101}[scope]
        if item.get_closest_marker("acceptance") is not None:
            return 2 + (LONGEST.index(module) if module in LONGEST else len(LONGEST))
        return 99 + (module == LAST)

    items.sort(key=turn)


class Shares(LoadScopeScheduling):
    """Gives each worker its share of the queue."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # else xdist sorts the queue by number of tests

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if self.nodes.index(node) >= FROM_THE_HEAD:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)
