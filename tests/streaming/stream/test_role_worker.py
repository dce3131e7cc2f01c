"""What the threads of a role tell its worker."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from coordination.errors import Stop, TidelakeError, TryAgain
from streaming.owner.control_writer import DeltaControlWriter
from streaming.stream.role_context import RoleWorker

LOST = TidelakeError("the stream has ended: offsets are gone")
AWAY = TryAgain("the storage does not answer")


@pytest.mark.parametrize(
    ("told", "raised"),
    [
        ((LOST, AWAY), LOST),
        ((AWAY, LOST), LOST),
        ((LOST, Stop("the stream has ended")), LOST),
        ((Stop("the stream has ended"), LOST), LOST),
        ((AWAY,), AWAY),
    ],
)
def test_what_ends_a_role_is_not_hidden_by_what_passes(
    told: tuple[Exception, ...], raised: Exception
) -> None:
    """The worker may be in a slow write while the applying thread, the stream or a DDL fails. It
    would try again on a stream that never comes back, or wait for a DDL that nobody runs."""
    context: Any = SimpleNamespace(name="a", stream=None, watch=lambda _: None)
    worker = RoleWorker(context, thread="a")
    for each in told:
        worker._fail(each)
    with pytest.raises(type(raised)) as found:
        worker._raise_failure()
    assert found.value is raised
    worker._raise_failure()


def test_an_owner_whose_stream_fails_keeps_its_row_fresh() -> None:
    """An owner of another etcd takes a changefeed over whose row is older than a lease lasts."""
    refreshed: list[float] = []
    writer: Any = object.__new__(DeltaControlWriter)
    writer._context = SimpleNamespace(trust=Mock(), check_jvm=Mock(), ttl_s=0.06)
    writer._closing = threading.Event()
    writer._backoff = Mock(next_s=lambda _: 0.3)
    writer._read_on = Mock(side_effect=AWAY)
    term = Mock()
    term.rows.refresh = refreshed.append
    writer._turn(term)
    assert len(refreshed) >= 3
    assert set(refreshed) == {0.02}
    term.reader.retry.assert_called_once_with()
