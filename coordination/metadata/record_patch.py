"""Patches that change records instead of bytes, and groups that read a key before they write.

The transaction may run a group several times, each time on newer values. So if one patch of a group
finds a fact for a later one, it finds it anew in each run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from coordination.metadata.errors import BrokenValue
from coordination.metadata.feed_state import known_state
from coordination.metadata.records import ChangefeedInfo, Record, dump, load
from coordination.orchestrator.transaction import Patch, PatchGroup

R = TypeVar("R", bound=Record)


def record_patch(
    key: str, kind: type[R], change: Callable[[R | None], R | None], *, is_compared: bool = False
) -> Patch:
    """A patch that changes the record of a key; None stands for an absent key. If the record stays
    equal, so do its bytes, and nothing is written."""

    def change_bytes(old: bytes | None) -> bytes | None:
        before = None if old is None else load(kind, old)
        after = change(before)
        if after == before:
            return old
        return None if after is None else dump(after)

    return Patch(key, change_bytes, is_compared)


def deleted(key: str) -> Patch:
    """A patch that deletes the key, even if its value cannot be read."""
    return Patch(key, lambda _old: None)


def unless_broken(patch: Patch) -> Patch:
    """The patch, but a value that cannot be read stays as it is, and its group goes on."""

    def change(old: bytes | None) -> bytes | None:
        try:
            return patch.change(old)
        except BrokenValue:
            return old

    return replace(patch, change=change)


def only_in_epoch(info_key: str, epoch: int, patch: Patch) -> PatchGroup:
    """A group of that patch, which does nothing unless the changefeed runs in that epoch at the
    commit. A report that arrives late belongs to a run that is over, or to a changefeed that is
    gone, and must not count for the present one.

    (TiCDC remembers a stop that it saw, and drops patches of a changefeed resumed since.)
    """
    runs = False

    def look(value: bytes | None) -> bytes | None:
        nonlocal runs
        try:
            info = None if value is None else load(ChangefeedInfo, value)
        except BrokenValue:
            info = None
        runs = info is not None and info.epoch == epoch and known_state(info).is_running
        return value

    def change(old: bytes | None) -> bytes | None:
        return patch.change(old) if runs else old

    return (Patch(info_key, look, is_compared=True), replace(patch, change=change))
