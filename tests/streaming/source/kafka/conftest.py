"""Reading is the same from a real broker and from a log in memory."""

from __future__ import annotations

import pytest

from tests.contracts.topics_contract import Cluster


@pytest.fixture(
    params=[pytest.param("broker", marks=pytest.mark.kafka, id="kafka"), "memory_broker"],
    ids=["kafka", "memory"],
    scope="module",
)
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Use a topic name of your own."""
    found: Cluster = request.getfixturevalue(request.param)
    return found
