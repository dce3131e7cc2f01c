"""TiCDC's codes on ours: every class that has one, what becomes of a changefeed, and the page."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import coordination
import sinks
import streaming
from conf.problems import SettingError
from coordination.errors import GC_ERRORS, UNRETRYABLE_ERRORS, TidelakeError
from coordination.metadata.feed_state import ERROR_STUCK
from coordination.metadata.records import ChangefeedInfo, FeedState
from coordination.model import ChangefeedID
from streaming.changefeed.settings_in_etcd import changefeed_settings
from tests.coordination.capture.test_server import Cluster
from tests.coordination.capture.test_server_errors import break_down, is_in
from tests.services.kafka_broker import REPOSITORY
from tests.simulation.feeds import NAME

AGAIN, FAILED, LOST = "tried again", "fails at once", "fails at once, paused too"
EXPECTED = {
    "ConfigError": ("CDC:ErrInvalidReplicaConfig", FAILED),
    "DdlNotSupported": ("CDC:ErrExecDDLFailed", FAILED),
    "RetriesExhausted": ("CDC:ErrReachMaxTry", AGAIN),
    "SinkUriInvalid": ("CDC:ErrSinkURIInvalid", FAILED),
    "SourceLost": ("CDC:ErrGCTTLExceeded", LOST),
    "SourceMoved": ("CDC:ErrSourceMoved", AGAIN),
    "SourceUriInvalid": ("CDC:ErrKafkaInvalidConfig", FAILED),
    "StorageRefuses": ("CDC:ErrS3StorageAPI", AGAIN),
    "TableSealed": ("CDC:ErrChangefeedUnretryable", FAILED),
    "TermRefused": ("CDC:ErrNotOwner", AGAIN),
    "TopicMissing": ("CDC:ErrKafkaTopicNotExists", AGAIN),
}
GOOD = "kafka://h:1/t?protocol=canal-json&enable-tidb-extension=true"


def fate(code: str) -> str:
    if code in GC_ERRORS:
        return LOST
    return FAILED if code in UNRETRYABLE_ERRORS else AGAIN


def coded(kind: type[TidelakeError] = TidelakeError) -> Iterator[type[TidelakeError]]:
    for each in kind.__subclasses__():
        if "code" in vars(each):
            yield each
        yield from coded(each)


@pytest.fixture(scope="module")
def classes() -> dict[str, type[TidelakeError]]:
    for package in (coordination, sinks, streaming):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name != "streaming.source.worker_daemon":
                importlib.import_module(module.name)
    return {each.__name__: each for each in coded()}


def test_each_class_has_ticdcs_code_and_a_fate(classes: dict[str, type[TidelakeError]]) -> None:
    codes = {name: vars(each)["code"] for name, each in classes.items()}
    assert {name: (code, fate(code)) for name, code in codes.items()} == EXPECTED


def test_the_page_for_operators_has_each_of_them() -> None:
    page = (REPOSITORY / "docs/operations.md").read_text()
    missing = [code for code, of in EXPECTED.values() if f"| `{code}` | {of} |" not in page]
    assert missing == []


@pytest.mark.parametrize(
    ("source", "sink", "code"),
    [
        ("kafka://h:1/t?protocol=avro", "delta:///lake", "CDC:ErrKafkaInvalidConfig"),
        (GOOD, "ftp://lake", "CDC:ErrSinkURIInvalid"),
        ("kafka://h:1/t?protocol=avro", "ftp://lake", "CDC:ErrInvalidReplicaConfig"),
    ],
)
def test_a_bad_uri_says_which(source: str, sink: str, code: str) -> None:
    info = ChangefeedInfo(
        id=ChangefeedID("shop"), sink_uri=source, config={"sink": {"delta-uri": sink}}
    )
    with pytest.raises(TidelakeError) as raised:
        changefeed_settings(info)
    assert isinstance(raised.value.__cause__, SettingError)
    assert getattr(raised.value, "code", "") == code


@pytest.mark.parametrize("name", [name for name, (_, of) in EXPECTED.items() if of != AGAIN])
def test_what_cannot_be_retried_fails_the_changefeed_at_once_and_says_why(
    name: str, classes: dict[str, type[TidelakeError]]
) -> None:
    cluster = Cluster(2)
    cluster.settle()
    break_down(cluster, classes[name]("why it is"))
    cluster.until(lambda: is_in(cluster, FeedState.FAILED), steps=40)
    assert cluster.info is not None
    assert cluster.info.error is not None
    assert (cluster.info.error.code, cluster.info.error.message) == (EXPECTED[name][0], "why it is")


class TestStuckDuration:
    """``changefeed-error-stuck-duration`` of the changefeed, as it is now."""

    def broken(self, duration: object) -> Cluster:
        cluster = Cluster(1)
        cluster.settle()
        info = cluster.info
        assert info is not None
        cluster.operator.pause(NAME)
        cluster.until(lambda: is_in(cluster, FeedState.STOPPED))
        info = cluster.info
        assert info is not None
        config = {**(info.config or {}), ERROR_STUCK: duration}
        cluster.operator.update(NAME, dataclasses.replace(info, config=config))
        cluster.operator.resume(NAME)
        break_down(cluster, TidelakeError("again and again"))
        return cluster

    @pytest.mark.parametrize("duration", ["1m", 60_000_000_000])
    def test_it_is_tried_for_so_long_and_no_longer(self, duration: object) -> None:
        cluster = self.broken(duration)
        began_at = cluster.world.clock.now_s
        cluster.until(lambda: is_in(cluster, FeedState.FAILED), steps=4 * 120)
        assert 20 < cluster.world.clock.now_s - began_at < 70
        assert cluster.info is not None
        assert cluster.info.error is not None
        assert cluster.info.error.code == "CDC:ErrChangefeedUnretryable"
        assert "no progress for 60 s" in cluster.info.error.message

    def test_one_that_is_no_duration_fails_it_at_once(self) -> None:
        cluster = self.broken("soon")
        cluster.until(lambda: is_in(cluster, FeedState.FAILED), steps=40)
        assert cluster.info is not None
        assert cluster.info.error is not None
        assert "changefeed-error-stuck-duration 'soon'" in cluster.info.error.message
