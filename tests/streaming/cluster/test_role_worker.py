"""What the threads of a role tell its worker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from coordination.errors import Stop, TidelakeError, TryAgain
from streaming.cluster.role_context import RoleWorker

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
