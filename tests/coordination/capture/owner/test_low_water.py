"""From where the source has to be read again, by what all captures say."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from coordination.capture.owner.term import low_water_positions

Offsets = Mapping[str, int]


def settled_on(**read_to: Offsets | None) -> Any:
    """Captures by their names, each of which has a span."""
    return SimpleNamespace(
        replication=SimpleNamespace(
            is_settled=True, sets=SimpleNamespace(primaries=read_to.keys())
        ),
        captures=SimpleNamespace(
            captures={each: SimpleNamespace(read_positions=at) for each, at in read_to.items()}
        ),
    )


def test_it_is_the_least_of_all_captures():
    assert low_water_positions(settled_on(a={"shop/0": 7}, b={"shop/0": 5})) == {"shop/0": 5}
    assert low_water_positions(settled_on(a={"shop/0": 7}, b=None)) == {}
    assert low_water_positions(settled_on()) == {}


def test_a_partition_that_was_added_counts_once_all_captures_read_it():
    """The one that does not read it yet has applied nothing of it."""
    coordinator = settled_on(a={"shop/0": 7, "shop/1": 9}, b={"shop/0": 5})
    assert low_water_positions(coordinator) == {"shop/0": 5}


def test_a_capture_that_has_left_its_stream_knows_of_no_partition():
    assert low_water_positions(settled_on(a={"shop/0": 7}, b={})) == {}
