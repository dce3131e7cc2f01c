"""``tidelake dead-letters``: which messages could not be applied, and their states.

No JVM, no broker: letters and their states are in `_tidelake/`, and `replay` writes as the stream
does.
"""

from __future__ import annotations

import base64
import getpass
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from conf.settings import DeltaSink
from coordination.errors import ConfigError
from coordination.model import TableName, tso_time
from coordination.secrets import revealed_options
from sinks.control.dead_letters import BY_PLACE, DeadLetters
from sinks.control.letter_states import LETTER, RESOLVED
from streaming.operations.progress_report import changefeed_rows

ShownRow = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A choice of letters: those that satisfy all given conditions. Times and commit-ts as [from,
    to]."""

    changefeed_id: str | None = None
    table: str | None = None
    reason: str | None = None
    part: str | None = None
    position: int | None = None
    index: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    from_ts: int | None = None
    to_ts: int | None = None
    state: str | None = None

    @property
    def is_said(self) -> bool:
        """Whether anything chooses among a changefeed's letters."""
        said = (getattr(self, name) for name in self.__slots__ if name != "changefeed_id")
        return any(value is not None for value in said)

    def among(self, letters: pa.Table) -> pa.Table:
        equals = {
            "error_class": self.reason,
            "part": self.part,
            "position": self.position,
            "index": self.index,
            "state": self.state,
        }
        if self.table is not None:
            if "." not in self.table:
                raise ConfigError(f"--table {self.table!r} must be schema.table")
            names = (letters["schema_name"], letters["table_name"])
            shown = pc.binary_join_element_wise(*names, ".")  # a dot may be in a name, too
            letters = letters.filter(pc.equal(shown, self.table))
        for name, value in equals.items():
            if value is not None:
                letters = letters.filter(pc.equal(letters[name], value))
        for name, low, high in (
            ("created_at", self.since, self.until),
            ("commit_ts", self.from_ts, self.to_ts),
        ):
            if low is not None:
                letters = letters.filter(pc.greater_equal(letters[name], low))
            if high is not None:
                letters = letters.filter(pc.less_equal(letters[name], high))
        return letters.sort_by([("changefeed_id", "ascending"), *BY_PLACE])


def dead_letters_of(sink: DeltaSink) -> DeadLetters:
    return DeadLetters(sink.warehouse, revealed_options(sink.storage_options))


def chosen(sink: DeltaSink, which: Chosen) -> pa.Table:
    """The letters without their bytes. ConfigError if there is no such changefeed."""
    changefeed_rows(sink, which.changefeed_id)
    return which.among(dead_letters_of(sink).listed(which.changefeed_id))


def list_letters(sink: DeltaSink, which: Chosen) -> list[ShownRow]:
    return [listed_row(each) for each in chosen(sink, which).to_pylist()]


def grouped(rows: Iterable[ShownRow]) -> list[ShownRow]:
    """How many letters there are of each table, reason and state, the most first, with the message
    of the last one."""
    groups: dict[tuple[str, ...], list[ShownRow]] = {}
    for row in rows:
        names = (row["changefeed"], row["table"] or "-", row["reason"] or "-", row["state"])
        groups.setdefault(names, []).append(row)
    largest = sorted(groups.items(), key=lambda each: (-len(each[1]), each[0]))
    return [
        {
            **dict(zip(("changefeed", "table", "reason", "state"), names, strict=True)),
            "letters": len(letters),
            "last_created_at": max(each["created_at"] for each in letters),
            "message": max(letters, key=lambda each: each["created_at"])["message"],
        }
        for names, letters in largest
    ]


def show_letters(sink: DeltaSink, which: Chosen) -> list[ShownRow]:
    """The letters with their messages. ConfigError if there is no such letter."""
    letters = chosen(sink, which)
    if not len(letters):
        raise ConfigError("there is no such dead letter: `tidelake dead-letters list` shows all")
    rows = dead_letters_of(sink).with_bytes(letters).to_pylist()
    return [
        {**listed_row(each), "identity": each["identity"], **_value(each["value"])} for each in rows
    ]


def resolve_letters(sink: DeltaSink, which: Chosen, note: str | None) -> list[ShownRow]:
    """Close open letters without a replay. Closed letters stay as they are."""
    found = chosen(sink, which)
    letters = found.select(list(LETTER))
    rows = letters.append_column("state", pa.repeat(pa.scalar(RESOLVED), len(letters)))
    if note is not None:
        rows = rows.append_column("note", pa.repeat(pa.scalar(note), len(letters)))
    dead_letters = dead_letters_of(sink)
    dead_letters.states.change(rows, by=operator_name())
    return now_of(dead_letters, which.changefeed_id, letters)


def now_of(
    dead_letters: DeadLetters, changefeed_id: str | None, letters: pa.Table
) -> list[ShownRow]:
    """These letters as they are now."""
    keys = list(LETTER)
    now = dead_letters.listed(changefeed_id).join(letters.select(keys), keys, join_type="left semi")
    ordered = now.sort_by([("changefeed_id", "ascending"), *BY_PLACE])
    return [listed_row(each) for each in ordered.to_pylist()]


def operator_name() -> str:
    """The person who gives the command, for `state_by`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = "?"
    return f"operator ({user}@{socket.gethostname()})"


def listed_row(letter: Mapping[str, Any]) -> ShownRow:
    schema, table, ts = letter["schema_name"], letter["table_name"], letter["commit_ts"]
    return {
        "changefeed": letter["changefeed_id"],
        "table": None if schema is None or table is None else str(TableName(schema, table)),
        "part": letter["part"],
        "position": letter["position"],
        "index": letter["index"],
        "commit_ts": ts,
        "commit_time": None if ts is None else tso_time(ts),
        "state": letter["state"],
        "state_at": letter["state_at"],
        "state_by": letter["state_by"],
        "created_at": letter["created_at"],
        "reason": letter["error_class"],
        "message": letter["message"],
        "note": letter["note"],
        "refusal": letter["barred"] or letter["refusal"],
    }


def _value(value: bytes | None) -> ShownRow:
    """The message as text where it is one, else its bytes in base64."""
    if value is None:
        return {"value": None}
    try:
        return {"value": value.decode()}
    except UnicodeDecodeError:
        return {"value": None, "value_base64": base64.b64encode(value).decode()}


def refuse_unsaid(which: Chosen, *, is_all: bool, does: str) -> None:
    """ConfigError for a command that would be about all letters without saying so."""
    if which.is_said == is_all:
        raise ConfigError(
            f"say which dead letters to {does}: --table, --reason, --position, …, or --all for "
            "every open one"
        )
