"""``tidelake dead-letters``: messages that could not be applied, and their states.

The docstring of each function under ``@about_letters`` is the command's ``--help``.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from conf.load import load_sink
from streaming.cli.options import ConfigFile, Format, ShownChangefeed, SinkUri, reported, say

MOST_LISTED = 20  # on a terminal, one by one

if TYPE_CHECKING:
    from conf.settings import DeltaSink
    from streaming.operations.captures import ShownRow
    from streaming.operations.letters import Chosen

letters = typer.Typer(
    help="Show the messages that could not be applied, apply them after a mend, or close them.",
    no_args_is_help=True,
)

Table = Annotated[
    str | None, typer.Option("--table", help="Only letters of this table, as schema.table.")
]
Reason = Annotated[
    str | None,
    typer.Option(
        help="Only letters of this kind: cast, unknown-column, malformed, … as `list` has."
    ),
]
Part = Annotated[
    str | None, typer.Option(help="Only letters from this part of the source: topic/partition.")
]
Position = Annotated[
    int | None, typer.Option(help="Only letters at this position of a part: Kafka's offset.")
]
Index = Annotated[
    int | None, typer.Option(help="Only letters of the row with this index in its message.")
]
Since = Annotated[
    datetime | None,
    typer.Option(help="Only letters that were put there at this time or later; UTC, ISO 8601."),
]
Until = Annotated[
    datetime | None,
    typer.Option(help="Only letters that were put there at this time or before; UTC, ISO 8601."),
]
FromTs = Annotated[
    int | None, typer.Option(help="Only letters with this commit-ts or a later one.")
]
ToTs = Annotated[
    int | None, typer.Option(help="Only letters with this commit-ts or an earlier one.")
]
State = Annotated[
    Literal["open", "replayed", "superseded", "resolved"] | None,
    typer.Option(help="Only letters in this state."),
]
All = Annotated[bool, typer.Option("--all", help="All open letters.")]


@dataclass(frozen=True, slots=True)
class Choice:
    """A command's input: the letters that its options choose, and how its answer is shown."""

    sink: DeltaSink
    which: Chosen
    as_json: bool

    def said(self, does: str, *, is_all: bool) -> Chosen:
        """For a command that changes letters. Raises ConfigError if neither options nor --all
        choose some."""
        from streaming.operations.letters import refuse_unsaid

        refuse_unsaid(self.which, is_all=is_all, does=does)
        return self.which

    def show(self, rows: ShownRow | list[ShownRow]) -> None:
        from streaming.cli import screen

        screen.show_rows(rows, as_json=self.as_json)


def about_letters(name: str | None = None) -> Callable[[Callable[..., None]], None]:
    """Make a command of a function that takes a `Choice`. Every such command gets the options that
    choose letters, beside its own ones."""

    def register(doing: Callable[..., None]) -> None:
        def command(
            *,
            sink_uri: SinkUri = None,
            changefeed_id: ShownChangefeed = None,
            table: Table = None,
            reason: Reason = None,
            part: Part = None,
            position: Position = None,
            index: Index = None,
            since: Since = None,
            until: Until = None,
            from_ts: FromTs = None,
            to_ts: ToTs = None,
            config: ConfigFile = None,
            output_format: Format = "table",
            **own: Any,
        ) -> None:
            with reported():
                sink = load_sink(config=config, environment=os.environ, sink_uri=sink_uri)
                from streaming.operations.letters import Chosen

                which = Chosen(
                    changefeed_id=changefeed_id,
                    table=table,
                    reason=reason,
                    part=part,
                    position=position,
                    index=index,
                    since=_utc(since),
                    until=_utc(until),
                    from_ts=from_ts,
                    to_ts=to_ts,
                )
                doing(Choice(sink, which, output_format == "json"), **own)

        _, *own = inspect.signature(doing, eval_str=True).parameters.values()
        *shared, _ = inspect.signature(command, eval_str=True).parameters.values()
        ordered = [*shared[:-2], *own, *shared[-2:]]
        command.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
        command.__annotations__ = {}
        letters.command(name or doing.__name__, help=doing.__doc__)(command)

    return register


def _utc(time: datetime | None) -> datetime | None:
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time


@about_letters("list")
def list_letters(choice: Choice, *, state: State = None) -> None:
    """List dead letters with their states: open, replayed, superseded or resolved.

    A letter is superseded when a newer change of its row has come: there is nothing to mend.
    On a terminal more than 20 letters are counted by table, reason and state; --table,
    --reason or another choice brings the single ones, and a pipe has them all.
    """
    from streaming.cli.screen import is_terminal
    from streaming.operations.letters import grouped, list_letters

    rows = list_letters(choice.sink, replace(choice.which, state=state))
    if len(rows) > MOST_LISTED and is_terminal() and not choice.as_json:
        choice.show(grouped(rows))
        say(f"{len(rows)} dead letters: --table, --reason or --position lists some of them")
        return
    choice.show(rows)


@about_letters()
def show(choice: Choice, *, state: State = None) -> None:
    """Show dead letters with their messages, and why they could not be applied.

    A message that is not UTF-8 is shown in base64.
    """
    from streaming.operations.letters import show_letters

    rows = show_letters(choice.sink, replace(choice.which, state=state))
    for each in [rows] if choice.as_json else rows:
        choice.show(each)


@about_letters()
def resolve(
    choice: Choice,
    *,
    every: All = False,
    note: Annotated[str | None, typer.Option(help="The reason, for later readers.")] = None,
) -> None:
    """Close open dead letters without applying them: they are not needed, or were mended.

    Example:
      tidelake dead-letters resolve --sink-uri delta:///data/lake --position 4711 --note 'test row'
    """
    from streaming.operations.letters import resolve_letters

    which = choice.said("resolve", is_all=every)
    choice.show(resolve_letters(choice.sink, which, note))


@about_letters()
def replay(choice: Choice, *, every: All = False) -> None:
    """Apply open dead letters after a mend: a column that is there now, a wider type, a new build.

    Each letter is applied once, and never over a newer change of its row; DELETEs too. The
    changefeed may run meanwhile, or not. Exit code 1: some letters stay open, and `refusal`
    says why.

    Example:
      tidelake dead-letters replay --sink-uri delta:///data/lake --table shop.orders
    """
    which = choice.said("replay", is_all=every)
    from streaming.operations.letter_replay import replay_letters

    rows = replay_letters(choice.sink, which)
    choice.show(rows)
    if left := sum(row["state"] == "open" for row in rows):
        say(f"{left} of {len(rows)} dead letters stay open: `refusal` says why")
        raise typer.Exit(1)
