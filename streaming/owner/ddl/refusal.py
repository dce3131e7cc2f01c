"""The sentence for an operator about a DDL that cannot be run: the statement, why, and how to go
on."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterable, Mapping

from conf.settings import Changefeed
from conf.sink_uri import sink_uri_of
from conf.sources.binlog_uri import BinlogSettings
from coordination.errors import TidelakeError
from coordination.model import TableName, Ts, tso_time
from sinks.ddl.text.shown import shown
from streaming.changefeed.replicated_table import no_reload_of
from streaming.changefeed.target_forms import write_modes
from streaming.owner.ddl.plan import DdlPlan
from streaming.owner.ddl.steps import DdlEvent
from streaming.protocols.contract import SNAPSHOT

logger = logging.getLogger(__name__)


class DdlNotSupported(TidelakeError):
    """A DDL that cannot be run: an operator says how to go on (``tidelake ddl``)."""

    code = "CDC:ErrExecDDLFailed"

    def __init__(self, text: str, ddl: DdlEvent | None = None, why: str = "") -> None:
        super().__init__(text)
        self.ddl = ddl
        self.why = why


def refusal(ddl: DdlEvent, why: str, way: str = "", *, is_waiting: bool = False) -> DdlNotSupported:
    """The error that quotes a DDL and says how to go on."""
    at = f"{tso_time(ddl.commit_ts):%Y-%m-%d %H:%M:%S} UTC"
    is_what = "waits" if is_waiting else "is not supported yet"
    text = (
        f"DDL at commit-ts {ddl.commit_ts} ({at}) on {ddl.name} {is_what}: "
        f"{shown(ddl.query)} ({why}). Everything below it is applied. {way}"
    )
    return DdlNotSupported(text.rstrip(), ddl, why)


def brief(ddl: DdlEvent, why: str, *, may_reload: bool = False) -> str:
    """For the table's row."""
    name = shlex.quote(str(ddl.name))
    way = f". `tidelake table reload {name}` loads the table anew" if may_reload else ""
    return f"{why}: {shown(ddl.query)}{way}"


def is_loaded_anew(changefeed: Changefeed, name: TableName) -> bool:
    """Whether `tidelake table reload` may be ordered for the table."""
    if not (name.table and isinstance(changefeed.source, BinlogSettings)):
        return False
    return not no_reload_of(write_modes(changefeed).of(name))


def way_past(ddl: DdlEvent, changefeed: Changefeed, *, may_reload: bool = False) -> str:
    """The commands that go on from a DDL that cannot be run."""
    name = shlex.quote(str(ddl.name) if ddl.name.table else ddl.name.schema)
    sink = f"--sink-uri {shlex.quote(sink_uri_of(changefeed.sink.warehouse))}"
    at = f"-c {changefeed.id} --table {name} --commit-ts {ddl.commit_ts} {sink}"
    reload = f"`tidelake table reload {name} -c {changefeed.id} {sink}`"
    anew = f"{reload} loads the table anew, as the database has it; " if may_reload else ""
    return (
        f"To go on: {anew}`tidelake ddl skip {at}` passes over it, and the target stays as it is; "
        f"`tidelake ddl apply {at} --sql 'ALTER TABLE …'` runs that statement in its place"
    )


def tell_of(
    planned: DdlPlan,
    ddls: Iterable[DdlEvent],
    *,
    above: Ts,
    tables: Mapping[TableName, Ts],
    say: Callable[[str, str | None], None],
) -> None:
    """Log and report the facts of a plan that an operator should know.

    ``ddls``: all that were read; those above ``above`` are planned now. ``tables``: that are there,
    with the last DDL of each. ``say``: reports a concern about a subject."""
    for untold in planned.untold:
        logger.warning(
            "the DDL does not tell for certain what the table is: its rows tell its columns "
            "table=%s sql=%s",
            *(untold.event.name, shown(untold.event.query)),
        )
    for event in ddls:
        is_new = max(above, tables.get(event.name, above)) < event.commit_ts <= planned.limit
        if event.ddl_type == SNAPSHOT and event.name in tables and is_new:
            say(
                f"snapshot of {event.name}",
                f"its connector has copied table {event.name} a second time: rows that were "
                "deleted since the copy before are still there. `tidelake diff` finds them; or "
                "move the table away and load it anew. It is shown until the next start",
            )
