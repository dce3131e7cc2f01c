"""Which worker of `make test` runs what, and when.

Three workers share two cores, as half of what the tests do is to wait: for a lease that ends, for a
process that starts. The queue is

    all of Spark | what starts processes, the longest first | Kafka's | others | the simulation

and two workers take from its head, the others from its end: so one has Spark, one has processes,
and beside them runs what needs a core and no patience, nor a broker of its worker. They meet in the
middle, at short modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

ROOT = Path(__file__).resolve().parents[1]
FROM_THE_HEAD = 2  # workers
SPARK = "spark"
LONGEST = ("tests/acceptance/test_cluster.py", "tests/acceptance/test_versions.py")
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


def in_turn(items: list[pytest.Item]) -> None:
    """Sort them as the queue has them."""

    def turn(item: pytest.Item) -> int:
        module = item.nodeid.partition("::")[0]
        if is_sparks(item.nodeid):
            return 0
        if item.get_closest_marker("acceptance") is not None:
            return 1 + (LONGEST.index(module) if module in LONGEST else len(LONGEST))
        if item.get_closest_marker("kafka") is not None:
            return 2 + len(LONGEST)
        return 3 + len(LONGEST) + (module == LAST)

    items.sort(key=turn)


class Shares(LoadScopeScheduling):
    """All that is Spark's in one worker: a second JVM would load and compile everything again.

    (xdist's own groups do not reach pytest 9's node IDs.)
    """

    def _split_scope(self, nodeid: str) -> str:
        if is_sparks(nodeid):
            return SPARK
        module = nodeid.partition("::")[0]
        is_long = module == LAST or module.startswith("tests/acceptance/")
        return nodeid if is_long else module

    def _assign_work_unit(self, node: WorkerController) -> None:
        if self.nodes.index(node) >= FROM_THE_HEAD:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)
