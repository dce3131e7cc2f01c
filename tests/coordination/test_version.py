"""Which captures share a cluster, by their versions."""

from __future__ import annotations

import pytest

from coordination.version import tidelake_version, work_together


@pytest.mark.parametrize(
    ("one", "other", "do"),
    [
        ("0.1.0", "0.1.0", True),
        ("0.1.0", "0.2.7", True),
        ("0.9.1", "0.10.0-rc1", True),
        ("v0.2.0", "0.1.0", True),
        ("0.1.0", "0.3.0", False),
        ("1.0.0", "0.9.0", False),
        ("dev", "7.0.0", True),
        (tidelake_version(), tidelake_version(), True),
    ],
)
def test_a_release_works_with_itself_and_those_next_to_it(one: str, other: str, do: bool):
    assert work_together(one, other) is do
    assert work_together(other, one) is do
