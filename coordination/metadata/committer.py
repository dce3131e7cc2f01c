"""How a group of patches gets into etcd: from the command line at once, in a server with the tick
of a reactor, which leaves it in the tick's state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from coordination.etcd.client import Compare, EtcdClient
from coordination.orchestrator.commit_once import commit_once
from coordination.orchestrator.patch import PatchGroup


class Committer(Protocol):
    def commit(self, groups: Sequence[PatchGroup], guards: Sequence[Compare] = ()) -> None:
        """Block until all groups are written, one after the other, each all or none.

        Raises what a patch refuses with (the groups before it are written then), ``GuardLost``, and
        ``TryAgain`` when it is not known whether they were written.
        """
        ...


class ClientCommitter:
    """Writes with a client of its own. Thread-safe."""

    def __init__(self, client: EtcdClient, delete_counter_key: str) -> None:
        self._client = client
        self._delete_counter_key = delete_counter_key

    def commit(self, groups: Sequence[PatchGroup], guards: Sequence[Compare] = ()) -> None:
        for group in groups:
            commit_once(self._client, (group,), self._delete_counter_key, guards)


class TickCommitter:
    """Leaves groups in the state of a reactor that calls it in its tick, and does not wait.

    They are written after the tick. One that refuses does nothing; the next ticks show that."""

    def __init__(
        self, add_group: Callable[..., None], guards: Callable[[], Sequence[Compare]]
    ) -> None:
        """`guards` are those of the worker, which are in all of its transactions."""
        self._add_group = add_group
        self._guards = guards

    def commit(self, groups: Sequence[PatchGroup], guards: Sequence[Compare] = ()) -> None:
        _check_guards(guards, self._guards())
        self._add_group(*groups)


def _check_guards(wanted: Sequence[Compare], held: Sequence[Compare]) -> None:
    if not set(wanted) <= set(held):
        raise ValueError("a guard that is not in the worker's transactions")
