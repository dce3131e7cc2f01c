"""What the benches time by name is there: a rename in the engine once broke a bench in silence."""

from __future__ import annotations

from tests.benchmarks.commit_parts import part_times


def test_the_functions_that_are_timed_are_there():
    with part_times() as times:
        assert set(times.take().values()) == {0.0}
