"""What failed beside other tests once more, one after the other, to say which kind each is.

    python -m pytest -n 3 ... || python -m tests.failed_alone [-m more]

A test that passes now has a fault too: it, or the program, does not bear what ran beside it. So
this fails in any case.
"""

from __future__ import annotations

import sys

import pytest

AT_MOST = 20  # that fail again: more of them say no more


class _Outcomes:
    def __init__(self) -> None:
        self.failed: dict[str, bool] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        has_failed = self.failed.get(report.nodeid, False)
        self.failed[report.nodeid] = has_failed or report.failed

    def told(self) -> str:
        lines = []
        for title, is_so in (("fails alone too", True), ("fails beside other tests only", False)):
            lines += [f"{title}: {test}" for test, failed in self.failed.items() if failed is is_so]
        return "\n".join(lines or ["no failed test could be run again: see the output above"])


def main(arguments: list[str]) -> int:
    print("what failed runs once more, alone, to say which kind of failure each is", flush=True)
    outcomes = _Outcomes()
    again = ["--last-failed", "--last-failed-no-failures", "none", f"--maxfail={AT_MOST}"]
    pytest.main([*again, *arguments], plugins=[outcomes])
    print(outcomes.told(), flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
