"""Which captures share a cluster, by their versions."""

from __future__ import annotations

import pytest

from coordination.etcd import keys
from coordination.etcd.client import delete
from coordination.metadata.version import tidelake_version, work_together
from coordination.model import CaptureID, CaptureInfo
from tests.coordination.capture.test_server import Cluster
from tests.simulation.world import CLUSTER


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


@pytest.mark.parametrize(("version", "goes_on"), [("1.1.3", True), ("1.2.0", False)])
def test_captures_of_adjacent_versions_work_together_and_others_stop_all(
    version: str, goes_on: bool, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(2)
    cluster.settle()
    other = CaptureInfo(
        id=CaptureID("other"), address="other:8300", version=version, start_timestamp=0
    )
    key = keys.capture_key(CLUSTER, other.id)
    cluster.world.etcd.put(key, keys.dump_capture_info(other))
    if goes_on:
        cluster.settle()
    else:
        with pytest.raises(AssertionError, match="not within"):
            cluster.settle()
    warned = [r.getMessage() for r in caplog.records if "nothing moves" in r.getMessage()]
    assert warned == (
        []
        if goes_on
        else [
            "nothing moves: captures do not work together with this one of version "
            "1.0.0: 1.2.0 at other:8300"
        ]
    )
    delete(cluster.world.etcd, key)
    cluster.settle()
