"""Keeps a control table small: every so many commits it is tidied and vacuumed, a checkpoint is
written, and old log entries are removed.

Readers of an older version have ``Upkeep.retention`` to finish. Only retention looks at the wall
clock, and it removes nothing that the current version names: the *content* never depends on a wall
clock. A failure is logged as a warning, and the next upkeep tries again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import PostCommitHookProperties

from sinks.storage.errors import STORAGE_ERRORS, one_line
from sinks.target.target_table import ONCE

UPKEEP_TRIES = 3  # other writers may commit between a vacuum and its own commit
ORPHAN_RETENTION_HOURS = 168  # of files that no commit names (failed tries leave them); Delta's
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
Step = Callable[[DeltaTable], None]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """When a table is tidied, and for how long a reader may hold an older version."""

    every_commits: int = 50
    # With a longer retention, listing the log would cost most of a commit's time.
    retention: timedelta = timedelta(minutes=15)
    orphans_every_commits: int = 1000  # a multiple of the above; it lists the whole folder


def keep_up(
    uri: str, options: Mapping[str, str], version: int, upkeep: Upkeep, tidy: Step | None
) -> None:
    """Upkeep after the commit of ``version``; orphans are looked for more rarely."""
    steps: list[Step] = [_vacuum, _checkpoint]
    if version % upkeep.orphans_every_commits == 0:
        steps.insert(1, _vacuum_orphans)
    if tidy is not None:
        steps.insert(0, tidy)
    for step in steps:
        _try(step, uri, options)


def join_files(handle: DeltaTable) -> None:
    """The upkeep of a table whose rows stay: joins small files."""
    handle.optimize.compact(commit_properties=ONCE, post_commithook_properties=NO_HOOKS)


def _try(step: Step, uri: str, options: Mapping[str, str]) -> None:
    failure: Exception | None = None
    for _ in range(UPKEEP_TRIES):
        try:
            step(DeltaTable(uri, storage_options=dict(options)))
        except CommitFailedError as error:
            failure = error
        except STORAGE_ERRORS as error:
            failure = error
            break
        else:
            return
    if failure is not None:
        _log.warning("control table upkeep failed table=%s error=%r", uri, one_line(failure))


def _vacuum(handle: DeltaTable) -> None:
    """Remove the files that commits took out longer ago than the table's retention."""
    handle.vacuum(dry_run=False, commit_properties=ONCE, post_commithook_properties=NO_HOOKS)


def _vacuum_orphans(handle: DeltaTable) -> None:
    handle.vacuum(
        ORPHAN_RETENTION_HOURS,
        dry_run=False,
        full=True,
        commit_properties=ONCE,
        post_commithook_properties=NO_HOOKS,
    )


def _checkpoint(handle: DeltaTable) -> None:
    handle.create_checkpoint()
    handle.cleanup_metadata()
