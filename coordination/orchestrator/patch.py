"""What a reactor wants changed in etcd: functions over values, grouped into transactions.

A patch does not say what a key is to be, but how it changes: it is run on the newest value that is
known, and again on a newer one when somebody else was faster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Change = Callable[[bytes | None], bytes | None]


class PatchSkipped(Exception):
    """Raised by a change that has become pointless: the rest of its group goes on."""


@dataclass(frozen=True, slots=True)
class Patch:
    """One key's change. ``None`` is an absent key, ``b""`` an empty value; equal in and out: no
    change.

    ``change`` may be run several times, so it must not have effects of its own. ``PatchSkipped``
    leaves this patch out, ``TryAgain`` puts its whole group off until newer events have come; any
    other error ends the worker.

    ``is_compared`` puts the key's mod-revision among the transaction's conditions also when the
    change leaves it as it is: what a patch has only *read* must then still be so at the commit."""

    key: str
    change: Change
    is_compared: bool = False


PatchGroup = tuple[Patch, ...]  # in one transaction, all or none; groups are committed in order
