"""How a group of patches gets into etcd: from the command line at once, in a server by the worker,
whose reactors leave it in the tick's state, and whose other threads post it:

caller's thread                          coordination thread (an EtcdWorker's tick)
commit ── post, wake ──► inbox ── take_groups ──► patches of this tick
  waits                                            committed, seen (`observe`)
  returns or raises ◄──────────────────── settle, at the next tick
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from coordination.errors import TidelakeError, TryAgain
from coordination.etcd.client import Compare, EtcdClient
from coordination.metadata.errors import MetadataError
from coordination.metadata.record_patch import unless_refused
from coordination.orchestrator.commit_once import commit_once
from coordination.orchestrator.patch import Patch, PatchGroup

ANSWER_S: Final = 30.0  # how long a caller waits for the coordination thread


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


@dataclass(eq=False, slots=True)
class _Posted:
    group: PatchGroup
    done: threading.Event = field(default_factory=threading.Event)
    error: TidelakeError | None = None
    planned: dict[str, bytes | None] = field(default_factory=dict)  # what it was to change
    is_cancelled: bool = False


class PostedCommitter:
    """Hands groups to the coordination thread, whose tick calls `settle` and then `take_groups`.

    A worker ticks again only when what the last tick wanted has been written and has come back, or
    when it was dropped because etcd gave no answer. So what has come back (`observe`, called for
    each key) was written; what has not is unknown, and the caller is told to look.
    """

    def __init__(
        self,
        wake: Callable[[], None],
        guards: Callable[[], Sequence[Compare]],
        answer_s: float = ANSWER_S,
    ) -> None:
        """`guards` are those of the worker, which are in all of its transactions."""
        self._wake = wake
        self._guards = guards
        self._answer_s = answer_s
        self._inbox: queue.SimpleQueue[_Posted] = queue.SimpleQueue()
        self._ended_by: TidelakeError | None = None
        self._waiting: deque[_Posted] = deque()
        self._handed_out: list[_Posted] = []

    def commit(self, groups: Sequence[PatchGroup], guards: Sequence[Compare] = ()) -> None:
        """From any thread but the coordination thread, which would wait for itself."""
        _check_guards(guards, self._guards())
        for group in groups:
            posted = _Posted(group)
            self._inbox.put(posted)
            if self._ended_by is not None:
                raise self._ended_by
            self._wake()
            if not posted.done.wait(self._answer_s):
                posted.is_cancelled = True
                raise TryAgain(f"the coordination thread gave no answer in {self._answer_s:g} s")
            if posted.error is not None:
                raise posted.error

    # the coordination thread's side

    def observe(self, key: str, value: bytes | None) -> None:
        """A key has come back from etcd."""
        for posted in self._handed_out:
            if key in posted.planned and posted.planned[key] == value:
                del posted.planned[key]

    def settle(self) -> None:
        """Answer for what the last tick took."""
        for posted in self._handed_out:
            if posted.error is None and posted.planned:
                posted.error = TryAgain("etcd did not say whether it was written: look again")
            posted.done.set()
        self._handed_out.clear()

    def take_groups(self) -> list[PatchGroup]:
        """What callers have posted, for this tick's patches: in order, and each key once.

        (Of two changes of a key in one transaction only the second comes back.)
        """
        assert not self._handed_out, "settle first"
        while not self._inbox.empty():
            self._waiting.append(self._inbox.get())
        taken: set[str] = set()
        while self._waiting:
            wanted = {patch.key for patch in self._waiting[0].group}
            if wanted & taken:
                self._wake()
                break
            posted = self._waiting.popleft()
            if not posted.is_cancelled:
                taken |= wanted
                self._handed_out.append(posted)
        return [_recorded(posted) for posted in self._handed_out]

    def close(self, error: TidelakeError) -> None:
        """The worker has ended, with that error: nobody waits any longer, now or later."""
        self._ended_by = error
        while not self._inbox.empty():
            self._waiting.append(self._inbox.get())
        for posted in (*self._handed_out, *self._waiting):
            posted.error = posted.error or error
            posted.done.set()
        self._handed_out.clear()
        self._waiting.clear()


def _check_guards(wanted: Sequence[Compare], held: Sequence[Compare]) -> None:
    if not set(wanted) <= set(held):
        raise ValueError("a guard that is not in the worker's transactions")


def _recorded(posted: _Posted) -> PatchGroup:
    """The group, which leaves its refusal and what it changes in `posted`, anew at each run."""

    def on_refused(error: MetadataError | None) -> None:
        posted.error = error
        if error is None:
            posted.planned.clear()

    def record(patch: Patch) -> Patch:
        def change(old: bytes | None) -> bytes | None:
            new = patch.change(old)
            if new != old:
                posted.planned[patch.key] = new
            return new

        return Patch(patch.key, change, patch.is_compared)

    guarded = unless_refused(posted.group, on_refused)
    return tuple(record(patch) for patch in guarded)
