"""What a serving cluster says, and does, when a changefeed meets an error at each start."""

from __future__ import annotations

import logging

import pytest

from coordination.errors import ConfigError, TermRefused, TopicMissing
from coordination.metadata.records import FeedState
from tests.coordination.capture.test_server import PATIENCE, Cluster, life_id
from tests.own_lines import own_records
from tests.simulation.feeds import NAME


def break_down(cluster: Cluster, error: Exception) -> None:
    """From its next start on, every capture meets this error."""

    def broken(*_arguments: object, **_keywords: object) -> object:
        raise error

    cluster.operator.pause(NAME)
    captures = cluster.world.captures
    cluster.until(
        lambda: all(control.is_closed() for c in captures for control in c.plane.controls)
    )
    cluster.until(lambda: all(r.is_closed() for c in captures for r in c.plane.replicas))
    for capture in captures:
        vars(capture.plane).update(open_control_writer=broken, open_replica=broken)
    vars(cluster.watchman).update(_reports=lambda: None)  # of the errors that are played here
    cluster.operator.resume(NAME)


def errors_in(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in own_records(caplog) if record.levelno >= logging.ERROR]


def is_in(cluster: Cluster, state: FeedState) -> bool:
    return cluster.info is not None and cluster.info.state is state


def test_a_wrong_configuration_fails_at_once_and_is_one_error_line_with_its_code(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster(2)
    cluster.settle()
    break_down(cluster, ConfigError("changefeed shop: protocol=avro is not built yet"))
    cluster.until(lambda: is_in(cluster, FeedState.FAILED))
    cluster.step(4)
    (line,) = errors_in(caplog)
    assert "CDC:ErrInvalidReplicaConfig" in line.getMessage()
    assert "protocol=avro is not built yet" in line.getMessage()
    assert [record for record in own_records(caplog) if record.exc_info] == []
    assert cluster.info is not None
    assert cluster.info.error is not None
    assert cluster.info.error.code == "CDC:ErrInvalidReplicaConfig"

    cluster.operator.resume(NAME)
    cluster.step(4)
    cluster.until(lambda: is_in(cluster, FeedState.FAILED))
    assert len(errors_in(caplog)) == 2, "who resumes it without having mended it hears of it again"


def test_a_known_error_that_is_tried_again_and_again_is_one_error_line_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster(2)
    cluster.settle()
    break_down(cluster, TopicMissing("topic shop does not exist"))
    for _ in range(3):
        cluster.until(lambda: is_in(cluster, FeedState.PENDING))
        cluster.until(lambda: not is_in(cluster, FeedState.PENDING), steps=10 * PATIENCE)
    (line,) = errors_in(caplog)
    assert "CDC:ErrKafkaTopicNotExists: topic shop does not exist" in line.getMessage()
    assert [record for record in own_records(caplog) if record.exc_info] == []


def test_an_error_that_nobody_foresaw_keeps_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster(1)
    cluster.settle()
    break_down(cluster, ZeroDivisionError("a bug"))
    cluster.until(lambda: is_in(cluster, FeedState.PENDING))
    kinds = [each.exc_info[0] for each in own_records(caplog) if each.exc_info]
    assert ZeroDivisionError in kinds


def test_a_refused_term_is_that_changefeeds_trouble_and_not_the_controllers() -> None:
    cluster = Cluster(2)
    cluster.settle()
    owner = cluster.owner
    assert owner.server.capture is not None
    before, leads_since = life_id(owner), owner.server.capture.leads_since
    owner.plane.controls[0]._error = TermRefused("term 1 is over: somebody has claimed")
    cluster.until(lambda: cluster.info is not None and cluster.info.state is FeedState.WARNING)
    assert cluster.info is not None
    assert cluster.info.warning is not None
    assert cluster.info.warning.code == "CDC:ErrNotOwner"
    assert "somebody has claimed" in cluster.info.warning.message
    cluster.until(lambda: cluster.world.warehouse.term == 2)
    cluster.settle()
    assert (life_id(owner), owner.server.capture.leads_since) == (before, leads_since)
    cluster.until(lambda: cluster.info is not None and cluster.info.state is FeedState.NORMAL)


def test_a_bug_in_one_changefeed_is_that_changefeeds_error() -> None:
    """Neither the owner of all resigns, nor does the capture end."""
    cluster = Cluster(2)
    cluster.settle()
    vars(cluster.watchman).update(_reports=lambda: None)
    vars(cluster.world).update(errors=Unheard())
    for capture in cluster.world.captures:
        assert capture.server.capture is not None
    before = {life_id(each) for each in cluster.world.captures}
    owner = cluster.owner
    vars(owner.plane.controls[0]).update(tell=_buggy)
    vars(owner.plane.replicas[0]).update(set_barrier=_buggy)
    cluster.until(lambda: cluster.info is not None and cluster.info.state is FeedState.PENDING)
    cluster.until(lambda: cluster.info is not None and cluster.info.state is FeedState.NORMAL)
    cluster.settle()
    assert cluster.owner is owner
    assert {life_id(each) for each in cluster.world.captures} == before


class Unheard(list[str]):
    """What is logged as an error is played."""

    def append(self, _text: str) -> None: ...


def _buggy(*_arguments: object) -> None:
    raise ZeroDivisionError("a bug")
