"""Patches over records instead of bytes, and groups that look before they write.

A group of a gate and changes is decided anew each time it is run: the gate reads its key, and the
changes are skipped if it found it shut. What passes between them stays within the group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from coordination.metadata.errors import BrokenValue, MetadataError
from coordination.metadata.feed_state import known_state
from coordination.metadata.model import ChangefeedInfo, Record, dump, load
from coordination.orchestrator.patch import Patch, PatchGroup, PatchSkipped

R = TypeVar("R", bound=Record)


def record_patch(
    key: str, kind: type[R], change: Callable[[R | None], R | None], *, is_compared: bool = False
) -> Patch:
    """A change of a record; None is an absent key. The bytes stay as they are if it stays equal."""

    def change_bytes(old: bytes | None) -> bytes | None:
        before = None if old is None else load(kind, old)
        after = change(before)
        if after == before:
            return old
        return None if after is None else dump(after)

    return Patch(key, change_bytes, is_compared)


def record_read(key: str, kind: type[R], look: Callable[[R | None], None]) -> Patch:
    """Look at a record, which must still be the same at the commit; `look` raises to refuse."""

    def same(old: bytes | None) -> bytes | None:
        look(None if old is None else load(kind, old))
        return old

    return Patch(key, same, is_compared=True)


def gated(
    key: str, is_open: Callable[[bytes | None], bool], patches: Sequence[Patch]
) -> PatchGroup:
    """The patches as one group that does nothing while the gate's key says no."""
    found_open = False

    def look(old: bytes | None) -> bytes | None:
        nonlocal found_open
        found_open = is_open(old)
        return old

    def behind(patch: Patch) -> Patch:
        def change(old: bytes | None) -> bytes | None:
            if not found_open:
                raise PatchSkipped
            return patch.change(old)

        return Patch(patch.key, change, patch.is_compared)

    return (Patch(key, look, is_compared=True), *(behind(patch) for patch in patches))


def runs_in(epoch: int) -> Callable[[bytes | None], bool]:
    """A gate on a changefeed's info: it is there, and runs in that epoch."""

    def is_open(value: bytes | None) -> bool:
        try:
            info = None if value is None else load(ChangefeedInfo, value)
        except BrokenValue:
            return False
        return info is not None and info.epoch == epoch and known_state(info).is_running

    return is_open


def unless_refused(group: PatchGroup) -> PatchGroup:
    """The group, that does nothing where it would raise a refusal, which would end a worker.

    Patches that can refuse must come before those that change something.
    """
    is_refused = False

    def nth(number: int, patch: Patch) -> Patch:
        def change(old: bytes | None) -> bytes | None:
            nonlocal is_refused
            is_refused &= number > 0  # a group is run anew on newer values
            if is_refused:
                raise PatchSkipped
            try:
                return patch.change(old)
            except MetadataError as error:
                is_refused = True
                raise PatchSkipped from error

        return Patch(patch.key, change, patch.is_compared)

    return tuple(nth(number, patch) for number, patch in enumerate(group))
