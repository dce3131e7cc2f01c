"""The etcd state that this worker has seen, and the transactions that it may build on it.

No I/O: EtcdWorker feeds reads and watch batches in, and sends planned transactions out.

    read ──► seen, all keys at `revision` ◄── apply (events, in order, of whole revisions)
                │
                └── take_updates ──► the reactor's state

Plans are built, and the reactor ticks, only once the watch has brought back the worker's last
write. So a worker never conflicts with its own writes, and a reactor always sees etcd as it was at
one moment.

A deleted key has no revisions: if a key was absent, then created and deleted again, a compare on
its revision does not notice. So each transaction with a delete counts one key up (the delete
counter), and every transaction compares that count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from coordination.errors import CaptureSuicide, Fenced, TidelakeError
from coordination.etcd.client import (
    MAX_TXN_OPS,
    Compare,
    Delete,
    KeyValue,
    Op,
    Put,
    RangeResult,
    WatchEvent,
)
from coordination.model import Revision
from coordination.orchestrator.transaction import PatchGroup, fold

NEVER_READ: Final = Revision(0)
ABSENT: Final = Revision(0)  # the revision that etcd compares with for a key that is not there

Update = tuple[str, KeyValue | None]  # a key was put, or deleted (None)


class GuardLost(Fenced):
    """The key of a guard, on which every write of this worker depends, is gone for good."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"nothing may be written any more: {key} is no longer there as it was put "
            "(the session ended, or the key was deleted)"
        )
        self.key = key


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The first `taken` groups as one transaction: do `ops` if all `compares` hold, the compare of
    the delete counter among them. No `ops`: the groups change nothing."""

    taken: int
    compares: tuple[Compare, ...] = ()
    ops: tuple[Op, ...] = ()
    counter: int = 0


class Snapshot:
    """Owned by one thread. Its keys are those below the prefixes of its `scope`, which are read and
    watched in one request; keys of other clusters and of TiDB are not among them. The delete
    counter and the keys of the `guards` must be. A guard is a create-revision that a key had: a
    condition of every transaction.
    """

    def __init__(
        self,
        prefixes: Sequence[str],
        delete_counter_key: str,
        guards: Callable[[], Sequence[Compare]] = tuple,
    ) -> None:
        self.revision = NEVER_READ  # everything up to it is in here, nothing after it
        self.scope = tuple(prefixes)
        self.counter_key = delete_counter_key
        self._guards = guards
        self._barrier = NEVER_READ
        self._seen: dict[str, KeyValue] = {}
        self._updates: list[Update] = []

    @property
    def caught_up(self) -> bool:
        """Whether the watch has brought back this worker's last write; until then nothing may be
        planned, and the reactor must not run."""
        return self.revision >= self._barrier

    def read(self, found: RangeResult) -> None:
        """Take over a read of the scope: the first one, or one that closes a gap in the watch.

        The updates of the gap are made from the difference: a delete for each key that is gone, a
        delete and a put for each key that was created anew. Raises ``CaptureSuicide`` if etcd went
        back to an older revision.
        """
        if found.revision < max(self.revision, self._barrier):
            raise CaptureSuicide(
                f"etcd went back from revision {max(self.revision, self._barrier)} to "
                f"{found.revision}: it was restored, or another one lies at its address"
            )
        for kv in found.kvs:
            self._check_known(kv)
        before, self._seen = self._seen, {kv.key: kv for kv in found.kvs if self._is_ours(kv.key)}
        for key, old in before.items():
            new = self._seen.get(key)
            if new is None or new.create_revision != old.create_revision:
                self._queue(key, None)
        for key, new in self._seen.items():
            if key not in before or before[key].mod_revision != new.mod_revision:
                self._queue(key, new)
        self.revision = found.revision

    def _check_known(self, kv: KeyValue) -> None:
        """Raises ``CaptureSuicide`` if a key went back to an older write, or one revision has two
        values of it: etcd was restored.

        A read may have a write that the watch did not bring. That proves nothing: etcd before 3.5.8
        may send the first half of a revision as if it were the whole.
        """
        known = self._seen.get(kv.key)
        if known is None:
            return
        is_other = kv.mod_revision == known.mod_revision and kv.value != known.value
        if is_other or kv.mod_revision < known.mod_revision:
            raise CaptureSuicide(
                f"etcd went back, and on in another way: {kv.key} is of revision "
                f"{kv.mod_revision}, and was of {known.mod_revision} before: etcd was restored"
            )

    def apply(self, events: Iterable[WatchEvent]) -> bool:
        """Take over the events of whole revisions; returns whether any was new and of these keys.

        The revision is taken from the events, never from the answer's header: while etcd catches a
        watch up, the header is ahead of events that are still to come.
        """
        floor, is_news = self.revision, False
        for event in events:
            if event.kv.mod_revision <= floor:
                continue  # a watch that was begun again sends some events twice
            self.revision = max(self.revision, event.kv.mod_revision)
            if self._is_ours(event.kv.key):
                self._take_in(event)
                is_news = True
        return is_news

    def take_updates(self) -> list[Update]:
        """The updates since the last call, in order."""
        taken, self._updates = self._updates, []
        return taken

    def plan(self, groups: Sequence[PatchGroup], *, drops_refused: bool = False) -> Plan:
        """Fold groups into a transaction; raises what ``fold`` raises. Each guard takes the place
        of a key."""
        guards = self._guards()
        most = MAX_TXN_OPS - 1 - len(guards)
        folded = fold(groups, self._value, most, drops_refused=drops_refused)
        if not folded.changes:
            return Plan(taken=folded.taken)
        ops: list[Op] = [
            Delete(key) if value is None else Put(key, value)
            for key, value in folded.changes.items()
        ]
        counter = self._counter()
        if any(isinstance(op, Delete) for op in ops):
            ops.append(counter_put(self.counter_key, counter))
        compared = dict.fromkeys((*folded.changes, *sorted(folded.reads)))
        unchanged = (Compare(key, "mod", self._mod_revision(key)) for key in compared)
        compares = (counter_compare(self.counter_key, counter), *guards, *unchanged)
        return Plan(taken=folded.taken, compares=compares, ops=tuple(ops), counter=counter)

    def committed(self, revision: Revision) -> None:
        """Take note that etcd has committed a plan: the next one, and the reactor, wait until the
        watch has brought it back."""
        self._barrier = max(self._barrier, revision)

    def check_guards(self) -> None:
        """Raises ``GuardLost`` for a guard that can never hold again: the key's revision, which it
        names, has been seen, and the key is gone or has another one."""
        for guard in self._guards():
            if self._is_lost(guard):
                raise GuardLost(guard.key)

    def _is_lost(self, guard: Compare) -> bool:
        if not self._is_ours(guard.key):
            raise ValueError(f"the guard {guard.key} is outside of the watched keys")
        assert guard.target == "create"
        assert isinstance(guard.operand, int)
        kv = self._seen.get(guard.key)
        is_there = kv is not None and kv.create_revision == guard.operand
        return not is_there and guard.operand <= self.revision  # else it is not seen yet

    def _is_ours(self, key: str) -> bool:
        return key.startswith(self.scope)

    def _take_in(self, event: WatchEvent) -> None:
        key, kv = event.kv.key, event.kv
        if event.kind == "put":
            self._seen[key] = kv
        else:
            self._seen.pop(key, None)
        self._queue(key, kv if event.kind == "put" else None)

    def _queue(self, key: str, kv: KeyValue | None) -> None:
        if key != self.counter_key:  # the reactor does not need the counter
            self._updates.append((key, kv))

    def _value(self, key: str) -> bytes | None:
        if not self._is_ours(key) or key == self.counter_key:
            raise ValueError(f"a patch of {key}, which is outside of the watched keys")
        kv = self._seen.get(key)
        return kv.value if kv else None

    def _mod_revision(self, key: str) -> Revision:
        kv = self._seen.get(key)
        return kv.mod_revision if kv else ABSENT

    def _counter(self) -> int:
        kv = self._seen.get(self.counter_key)
        if kv is None:
            return 0
        value = kv.value
        if not value.isdigit() or value.startswith(b"0"):
            raise TidelakeError(
                f"the delete counter in etcd, {self.counter_key}, holds {value!r} and not a "
                "number above 0: somebody wrote to it"
            )
        return int(value)


def counter_compare(counter_key: str, counter: int) -> Compare:
    """The condition that nothing was deleted since the count was `counter`. At 0 the key must be
    absent: the first delete creates it."""
    if counter == 0:
        return Compare(counter_key, "create", 0)
    return Compare(counter_key, "value", str(counter).encode())


def counter_put(counter_key: str, counter: int) -> Put:
    return Put(counter_key, str(counter + 1).encode())
