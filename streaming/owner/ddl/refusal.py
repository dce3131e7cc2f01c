"""The sentence for an operator about a DDL that cannot be run: the statement, why, and how to go
on."""

from __future__ import annotations

import shlex

from conf.settings import Changefeed
from conf.sink_uri import sink_uri_of
from coordination.errors import TidelakeError
from coordination.model import tso_time
from sinks.ddl.text.shown import shown
from streaming.owner.ddl.steps import DdlEvent


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


def brief(ddl: DdlEvent, why: str) -> str:
    """For the table's row."""
    return f"{why}: {shown(ddl.query)}"


def way_past(ddl: DdlEvent, changefeed: Changefeed) -> str:
    """The commands that go on from a DDL that cannot be run."""
    name = str(ddl.name) if ddl.name.table else ddl.name.schema
    at = (
        f"-c {changefeed.id} --table {shlex.quote(name)} --commit-ts {ddl.commit_ts} "
        f"--sink-uri {shlex.quote(sink_uri_of(changefeed.sink.warehouse))}"
    )
    return (
        f"To go on: `tidelake ddl skip {at}` passes over it, and the target stays as it is; "
        f"`tidelake ddl apply {at} --sql 'ALTER TABLE …'` runs that statement in its place"
    )
