"""Groups that are written with a reactor's tick."""

from __future__ import annotations

import pytest

from coordination.etcd.client import Compare
from coordination.metadata.committer import TickCommitter
from coordination.orchestrator.patch import Patch, PatchGroup

GUARD = Compare("/guard", "create", "=", 7)


def puts(key: str, value: bytes = b"1") -> Patch:
    return Patch(key, lambda _old: value)


def test_a_tick_takes_groups_as_they_come_and_only_behind_its_own_guards() -> None:
    taken: list[PatchGroup] = []
    committer = TickCommitter(lambda *groups: taken.extend(groups), lambda: (GUARD,))
    first, second = (puts("/a"),), (puts("/b"), puts("/c"))
    committer.commit((first,), (GUARD,))
    committer.commit((second,))
    assert taken == [first, second]
    with pytest.raises(ValueError, match="guard"):
        committer.commit((first,), (Compare("/other", "create", "=", 7),))
