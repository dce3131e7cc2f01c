"""Does one thing to copies of a table, each time in a process that is killed one step further on.

``python -m tests.sinks.merge_on_write.killed <deed> <table> <copies> <stride>``: a step is a call
that changes the file system; of a write half the bytes are there. The copy in which nothing was
killed is the last one. A process of its own that has started no thread yet can fork for each.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.log.checkpoint_writer import write_checkpoint
from sinks.merge_on_write.upkeep.clean_up import clean_files, clean_log
from sinks.merge_on_write.upkeep.fold import fold
from sinks.merge_on_write.upkeep.gather import gather
from tests.sinks.merge_on_write.ddls import ADD_FILLED, ddl, truncate
from tests.sinks.merge_on_write.event_logs import rewound_write
from tests.sinks.merge_on_write.exchanges import exchanged
from tests.sinks.merge_on_write.orders import UPSERTED, write
from tests.sinks.merge_on_write.recoveries import came_back
from tests.sinks.merge_on_write.renames import renamed
from tests.sinks.merge_on_write.row_histories import rewound_history_write, rewound_truncate

DAY_MS = 24 * 3600 * 1000


def upsert(uri: str) -> None:
    MergeOnWriteEngine({}, keeps_up=False).apply(write(uri, 100, UPSERTED))


def folded(uri: str) -> None:
    table = MergeOnWriteEngine({}, keeps_up=False).table(uri)
    assert fold(table, ("id",)) is not None


def gathered(folder: str) -> None:
    gather(MergeOnWriteEngine({}, keeps_up=False).table(f"{folder}/c"))


def upkept(uri: str) -> None:
    """A checkpoint, then all goes that no version of today needs."""
    table = MergeOnWriteEngine({}, keeps_up=False).table(uri)
    table.refresh()
    later = int(time.time() * 1000) + DAY_MS
    write_checkpoint(table.storage, table.state, now_ms=later)
    clean_log(table.storage, table.state, now_ms=later, retention_ms=0)
    clean_files(table.storage, table.state, now_ms=later, retention_ms=0)


def altered(uri: str) -> None:
    MergeOnWriteEngine({}, keeps_up=False).alter(ddl(uri, ADD_FILLED))


def emptied(uri: str) -> None:
    MergeOnWriteEngine({}, keeps_up=False).alter(truncate(uri))


def dropped(uri: str) -> None:
    MergeOnWriteEngine({}, keeps_up=False).alter(ddl(uri, None, on_drop="keep"))


def appended(uri: str) -> None:
    """A log that was rewound: what it has of that range is replaced."""
    MergeOnWriteEngine({}, keeps_up=False).apply(rewound_write(uri))


def historied(uri: str) -> None:
    """A history that was rewound: what it has of that range is taken back."""
    MergeOnWriteEngine({}, keeps_up=False).apply(rewound_history_write(uri))


def closed(uri: str) -> None:
    """A TRUNCATE of the same."""
    MergeOnWriteEngine({}, keeps_up=False).alter(rewound_truncate(uri))


def swapped(folder: str) -> None:
    renamed(folder, {"a": "b", "b": "a"})


def moved(folder: str) -> None:
    renamed(folder, {"a": "c"})


DEEDS: Mapping[str, Callable[[str], None]] = {
    "upsert": upsert, "fold": folded, "upkeep": upkept, "alter": altered, "truncate": emptied,
    "drop": dropped, "append": appended, "history": historied, "close": closed, "swap": swapped,
    "rename": moved, "recover": came_back, "exchange": exchanged, "gather": gathered,
}  # fmt: skip


class Countdown:
    """Kills this process at the step that it was made for."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                if call is _WRITE:
                    call(arguments[0], arguments[1][: len(arguments[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return counted


_WRITE = os.write


def child(deed: Callable[[str], None], uri: str, steps: int) -> None:
    countdown = Countdown(steps)
    for name in ("open", "write", "link", "unlink", "replace", "makedirs"):
        setattr(os, name, countdown.before(getattr(os, name)))
    os.fsync = lambda _descriptor: None
    deed(uri)


def main(deed: str, table: str, copies: str, stride: str) -> None:
    for steps in range(0, 1000, int(stride)):
        uri = f"{copies}/{steps:03}"
        shutil.copytree(table, uri)
        process = os.fork()
        if process == 0:
            status = 1
            try:
                child(DEEDS[deed], uri, steps)
                status = 0
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if status != -signal.SIGKILL:
            sys.exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])
