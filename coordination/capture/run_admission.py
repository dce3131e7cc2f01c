"""Whether a `run` may take part in its changefeed, and whether it writes it anew in etcd.

    registered ─► captures before this one? ──none──► writes the changefeed anew ─► admitted
                        │
                        ├── it runs, with the same arguments ───────────────► admitted: joins them
                        └── other arguments, or it is over ─► asks again, until they are gone
                                  still there after the wait ─► other arguments: refused
                                                             └► the same: joins them

The capture that registered first decides; so of two that start at one moment, one sees the other.
A capture that was killed stays registered until its lease ends, so the wait is as long as that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from coordination.errors import ConfigError
from coordination.etcd import keys
from coordination.etcd.client import Compare, Delete, EtcdClient
from coordination.metadata.changefeed_writes import anew_writes
from coordination.metadata.feed_state import known_state
from coordination.metadata.lookup import captures_before, find_changefeed, read_changefeeds
from coordination.metadata.records import ChangefeedInfo, FeedState
from coordination.model import CaptureID, Revision
from coordination.orchestrator.commit_once import commit_once
from coordination.trust.clock import Clock

logger = logging.getLogger(__name__)

RUN: Final = "run"  # key in the info's config: the changefeed's arguments, by setting
MARGIN_S: Final = 2.0  # from a lease's end until etcd has deleted its keys


class RunAdmission:
    """The admission of one process; called in each of its sessions, on the coordination thread.
    Blocks for calls to etcd."""

    def __init__(
        self,
        client: EtcdClient,
        scope: str,
        info: ChangefeedInfo,
        *,
        ttl_s: float,
        clock: Clock,
        refuse: Callable[[Revision], None] = lambda _registered: None,
        on_join: Callable[[], None] = lambda: None,
        is_answered: Callable[[str], bool] = lambda _address: True,
    ) -> None:
        """``refuse`` raises if this process may not take part whatever its arguments are;
        ``on_join`` is called when it joins captures that were first. ``is_answered``: whether
        anybody is at an address."""
        self._client = client
        self._scope = scope
        self._info = info
        self._wait_s = ttl_s + MARGIN_S
        self._clock = clock
        self._refuse = refuse
        self._on_join = on_join
        self._is_answered = is_answered
        self._waiting: tuple[CaptureID, float] | None = None  # with which ID, and until when

    def __call__(self, capture_id: CaptureID, registered: Revision) -> bool:
        """Whether the capture takes part now; False: ask again. `registered` is the create-revision
        of its key. Raises ConfigError if other captures run the changefeed with other arguments,
        ``TryAgain``, and what ``refuse`` raises."""
        self._refuse(registered)
        before = captures_before(self._client, self._scope, registered)
        others = {info.id: info.address for info in before}
        found = find_changefeed(self._client, self._scope, self._info.name)
        if not others:
            reporting = found.task_positions if found is not None else ()
            self._begin_anew(capture_id, registered, reporting)
            return True
        stored = found.info if found is not None else None
        differences = _differences(stored, self._info)
        is_over = stored is None or not known_state(stored).is_running
        if not differences and not is_over:
            return self._join(others)
        if not self._has_waited(capture_id, others, differences):
            return False
        if differences:
            raise ConfigError(
                f"changefeed {self._info.id} is replicated with other arguments by "
                f"{_shown(others)}: {'; '.join(differences)}. Stop those, or give this one the "
                "same arguments"
            )
        return self._join(others)

    def _begin_anew(
        self, capture_id: CaptureID, registered: Revision, reporting: Iterable[CaptureID]
    ) -> None:
        own = Compare(keys.capture_key(self._scope, capture_id), "create", registered)
        writes = anew_writes(self._scope, self._info, reporting)
        commit_once(self._client, [writes], keys.delete_counter_key(self._scope), (own,))

    def _join(self, others: Mapping[CaptureID, str]) -> bool:
        dead = {each: at for each, at in others.items() if not self._is_answered(at)}
        if dead:
            logger.warning("%s", waits_for_the_dead(self._info.id, dead, self._wait_s))
        if living := {each: at for each, at in others.items() if each not in dead}:
            logger.info("joins changefeed_id=%s with=%s", self._info.id, _shown(living))
        self._on_join()
        return True

    def _has_waited(
        self, capture_id: CaptureID, others: Mapping[CaptureID, str], differences: list[str]
    ) -> bool:
        now = self._clock.monotonic()
        if self._waiting is None or self._waiting[0] != capture_id:
            self._waiting = (capture_id, now + self._wait_s)
            logger.warning(
                "waits for up to %.0f s: changefeed %s has captures that may have ended (%s), %s",
                self._wait_s,
                self._info.id,
                _shown(others),
                f"with other arguments: {'; '.join(differences)}" if differences else "and is over",
            )
        return now >= self._waiting[1]


def waits_for_the_dead(changefeed_id: str, dead: Mapping[CaptureID, str], wait_s: float) -> str:
    """The sentence for an operator who has started a killed process again. ``dead``: captures by
    ID, with the addresses at which nobody answers."""
    return (
        f"waits for up to {wait_s:.0f} s: nobody answers for {_shown(dead)}, as after a kill. Its "
        f"lease in etcd ends by then, and changefeed {changefeed_id} goes on here with its tables"
    )


def clean_up(client: EtcdClient, scope: str) -> None:
    """Delete all keys of a finished changefeed's scope, unless a capture is registered there or a
    key has changed meanwhile. Blocks for calls to etcd."""
    prefixes = (keys.base_prefix(scope), keys.own_prefix(scope))
    kvs = client.range(prefixes, prefix=True).kvs
    is_used = any(kv.key.startswith(keys.capture_prefix(scope)) for kv in kvs)
    stored = None if is_used else read_changefeeds(client, scope)
    if not stored or any(each.known_info.state is not FeedState.FINISHED for each in stored):
        return
    as_read = [Compare(kv.key, "mod", kv.mod_revision) for kv in kvs]
    client.txn(as_read, [Delete(kv.key) for kv in kvs])


def _differences(stored: ChangefeedInfo | None, wanted: ChangefeedInfo) -> list[str]:
    if stored is None:
        return []
    theirs, ours = _described(stored), _described(wanted)
    return [
        f"{name} is {theirs.get(name)} there and {ours.get(name)} here"
        for name in sorted({*theirs, *ours})
        if theirs.get(name) != ours.get(name)
    ]


def _described(info: ChangefeedInfo) -> Mapping[str, Any]:
    return (info.config or {}).get(RUN) or {}


def _shown(captures: Mapping[CaptureID, str]) -> str:
    return ", ".join(f"capture {each} at {address}" for each, address in sorted(captures.items()))
