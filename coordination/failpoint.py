"""The named steps at which tests break the program; they cost nothing when none is set.

``TIDELAKE_FAILPOINTS="after-apply=kill:3,after-progress=stop"``: at the third passage of
``after-apply`` the process kills itself with SIGKILL; ``stop`` sends SIGSTOP, ``raise`` raises
``FailpointHit``. The enumeration `Failpoint` has all of them, in the order of a batch."""

from __future__ import annotations

import os
import signal
from enum import StrEnum
from typing import Final

VARIABLE = "TIDELAKE_FAILPOINTS"


class Failpoint(StrEnum):
    AFTER_CHUNK = "after-chunk"  # of a first copy's table: it is noted
    BEFORE_LOAD = "before-load"  # all tables are copied, and it is settled where each goes on
    AFTER_LOAD_ONE = "after-load-one"  # one table's rows are committed
    BEFORE_FIRST_ROWS = "before-first-rows"  # all tables are loaded, no control row says so
    AFTER_FIRST_PROGRESS = "after-first-progress"
    AFTER_FIRST_ROWS = "after-first-rows"  # the staged files are still there
    BEFORE_CLAIM = "before-claim"
    AFTER_CLAIM = "after-claim"
    BEFORE_STREAM = "before-stream"
    BATCH_START = "batch-start"
    AFTER_DECODE = "after-decode"
    AFTER_DEAD_LETTERS = "after-dead-letters"
    AFTER_CREATE_TABLE = "after-create-table"
    BEFORE_DDL = "before-ddl"  # a DDL that alters a target: all rows below it are applied
    AMID_RENAME = "amid-rename"  # the tables have left their names; one is to come to its new one
    AMID_REWRITE = "amid-rewrite"  # a part of the rows that a DDL writes anew is written
    AFTER_DDL = "after-ddl"  # its commit is made, but not recorded or told to anybody yet
    AFTER_FENCE_CHECK = "after-fence-check"  # between the last check and a target's commit
    AFTER_APPLY_ONE = "after-apply-one"  # one table of the batch is committed, others are not
    AFTER_APPLY = "after-apply"
    AFTER_PROGRESS = "after-progress"
    AFTER_CHANGEFEED = "after-changefeed"
    AFTER_LEDGER = "after-ledger"
    BATCH_END = "batch-end"


OF_A_COPY: Final = frozenset(
    {
        *(Failpoint.AFTER_CHUNK, Failpoint.BEFORE_LOAD, Failpoint.AFTER_LOAD_ONE),
        *(Failpoint.BEFORE_FIRST_ROWS, Failpoint.AFTER_FIRST_PROGRESS, Failpoint.AFTER_FIRST_ROWS),
    }
)


class FailpointHit(Exception):
    """A failure that a test asked for. As with a crash, no code in the program handles it."""


_actions: dict[str, list[tuple[str, int]]] = {}
_passages: dict[str, int] = {}


def configure(text: str) -> None:
    """Set the actions from ``name=action[:nth]`` items, separated by commas; an empty text clears
    them. Raises ``ValueError`` for an unknown name."""
    _actions.clear()
    _passages.clear()
    for item in filter(None, text.split(",")):
        name, _, action = item.partition("=")
        action, _, nth = action.partition(":")
        _actions.setdefault(Failpoint(name.strip()), []).append((action.strip(), int(nth or 1)))


def failpoint(name: Failpoint) -> None:
    """Count a passage of this step, and do the action that is set for it, if there is one."""
    if not _actions:
        return
    passage = _passages[name] = _passages.get(name, 0) + 1
    for action, nth in _actions.get(name, ()):
        if passage != nth:
            continue
        if action == "raise":
            raise FailpointHit(f"failpoint {name}")
        os.kill(os.getpid(), signal.SIGKILL if action == "kill" else signal.SIGSTOP)


configure(os.environ.get(VARIABLE, ""))
