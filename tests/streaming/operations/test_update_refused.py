"""`changefeed update` gives no changefeed a source that begins with a copy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from coordination.errors import ConfigError
from coordination.metadata.feed_state import FeedState
from coordination.metadata.records import ChangefeedInfo
from coordination.model import ChangefeedID
from streaming.operations import cluster
from streaming.operations.cluster import Operator

FOLLOWED = "mysql://root@db:3306/?task-mode=incremental"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[ChangefeedInfo]:
    info = ChangefeedInfo(
        id=ChangefeedID("shop"),
        sink_uri=FOLLOWED,
        state=FeedState.STOPPED,
        config={"sink": {"delta-uri": "delta:///lake"}},
    )
    found: list[ChangefeedInfo] = []
    stored = SimpleNamespace(known_info=info, status=None)
    monkeypatch.setattr(Operator, "_read", lambda *_: stored)
    monkeypatch.setattr(Operator, "query", lambda *_: {})
    monkeypatch.setattr(cluster, "findings", lambda *_, **__: ())
    writer = SimpleNamespace(update=lambda _, changed: found.append(changed))
    monkeypatch.setattr(cluster, "ChangefeedOperator", lambda *_: writer)
    return found


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("mysql://root@db:3306/?task-mode=all", "task-mode=all begins with a copy"),
        ("mysql://root@db:3306/", "begins with a copy"),
        ("tidb://root@db:4000/", "a TiDB is copied by `tidelake run`"),
    ],
)
def test_another_source_that_begins_with_a_copy(
    written: list[ChangefeedInfo], uri: str, why: str
) -> None:
    client: Any = None
    operator = Operator(client, "default", client)
    for is_dry in (True, False):
        with pytest.raises(ConfigError, match=why):
            operator.update("shop", {"source-uri": uri}, {}, is_checked=False, is_dry=is_dry)
    assert not written
    moved = FOLLOWED.replace("db", "other")
    operator.update("shop", {"source-uri": moved}, {}, is_checked=False)
    assert [each.sink_uri for each in written] == [moved]
