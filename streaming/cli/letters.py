"""``tidelake dead-letters``: messages that could not be applied, and what becomes of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import typer

from conf.load import load_sink
from streaming.cli.options import ConfigFile, Format, ShownChangefeed, SinkUri, reported, say

letters = typer.Typer(
    help="Show the messages that could not be applied, apply them after a mend, or close them.",
    no_args_is_help=True,
)

Table = Annotated[str | None, typer.Option("--table", help="Of this table, as schema.table.")]
Reason = Annotated[
    str | None, typer.Option(help="Of this kind: cast, unknown-column, malformed, … as `list` has.")
]
Part = Annotated[str | None, typer.Option(help="Of this part of the source: topic/partition.")]
Position = Annotated[int | None, typer.Option(help="At this position in its part: Kafka's offset.")]
Since = Annotated[
    datetime | None, typer.Option(help="Put there at this time or later; UTC, ISO 8601.")
]
Until = Annotated[
    datetime | None, typer.Option(help="Put there at this time or before; UTC, ISO 8601.")
]
FromTs = Annotated[int | None, typer.Option(help="Of this commit-ts or a later one.")]
ToTs = Annotated[int | None, typer.Option(help="Of this commit-ts or an earlier one.")]
State = Annotated[
    Literal["open", "replayed", "superseded", "resolved"] | None,
    typer.Option(help="In this state."),
]
All = Annotated[bool, typer.Option("--all", help="Every open one.")]


@letters.command("list")
def list_letters(
    *,
    sink_uri: SinkUri = None,
    changefeed_id: ShownChangefeed = None,
    table: Table = None,
    reason: Reason = None,
    part: Part = None,
    position: Position = None,
    since: Since = None,
    until: Until = None,
    from_ts: FromTs = None,
    to_ts: ToTs = None,
    state: State = None,
    config: ConfigFile = None,
    output_format: Format = "table",
) -> None:
    """List dead letters with their states: open, replayed, superseded or resolved.

    A letter is superseded when a newer change of its row has come: there is nothing to mend.
    """
    _run(lambda sink, which: _letters().list_letters(sink, which), **locals())


@letters.command()
def show(
    *,
    sink_uri: SinkUri = None,
    changefeed_id: ShownChangefeed = None,
    table: Table = None,
    reason: Reason = None,
    part: Part = None,
    position: Position = None,
    since: Since = None,
    until: Until = None,
    from_ts: FromTs = None,
    to_ts: ToTs = None,
    state: State = None,
    config: ConfigFile = None,
    output_format: Format = "table",
) -> None:
    """Show dead letters with their messages, and why they could not be applied.

    A message that is not UTF-8 is shown in base64.
    """
    _run(lambda sink, which: _letters().show_letters(sink, which), one_by_one=True, **locals())


@letters.command()
def resolve(
    *,
    sink_uri: SinkUri = None,
    changefeed_id: ShownChangefeed = None,
    table: Table = None,
    reason: Reason = None,
    part: Part = None,
    position: Position = None,
    since: Since = None,
    until: Until = None,
    from_ts: FromTs = None,
    to_ts: ToTs = None,
    every: All = False,
    note: Annotated[str | None, typer.Option(help="Why, for those who look later.")] = None,
    config: ConfigFile = None,
    output_format: Format = "table",
) -> None:
    """Close open dead letters without applying them: what they say is not needed, or was mended.

    Example:
      tidelake dead-letters resolve --sink-uri delta:///data/lake --position 4711 --note 'test row'
    """
    _run(
        lambda sink, which: _letters().resolve_letters(sink, which, note),
        does="resolve",
        **locals(),
    )


@letters.command()
def replay(
    *,
    sink_uri: SinkUri = None,
    changefeed_id: ShownChangefeed = None,
    table: Table = None,
    reason: Reason = None,
    part: Part = None,
    position: Position = None,
    since: Since = None,
    until: Until = None,
    from_ts: FromTs = None,
    to_ts: ToTs = None,
    every: All = False,
    config: ConfigFile = None,
    output_format: Format = "table",
) -> None:
    """Apply open dead letters after a mend: a column that is there now, a wider type, a new build.

    Each is applied once, and never over a newer change of its row; DELETEs too. It makes no
    difference whether the changefeed runs meanwhile. Exit code 1: some stay open, and say why.

    Example:
      tidelake dead-letters replay --sink-uri delta:///data/lake --table shop.orders
    """
    rows = _run(_replayed, does="replay", **locals())
    if left := sum(row["state"] == "open" for row in rows):
        say(f"{left} of {len(rows)} dead letters stay open: `refusal` says why")
        raise typer.Exit(1)


def _replayed(sink: Any, which: Any) -> Any:
    from streaming.operations.letter_replay import replay_letters

    return replay_letters(sink, which)


def _letters() -> Any:
    from streaming.operations import letters as found

    return found


def _run(
    deed: Callable[[Any, Any], Any],
    *,
    sink_uri: str | None,
    config: Any,
    output_format: str,
    does: str | None = None,
    every: bool = False,
    one_by_one: bool = False,
    **which: Any,
) -> Any:
    with reported():
        sink = load_sink(config=config, environment=os.environ, sink_uri=sink_uri)
        from streaming.cli import terminal
        from streaming.operations.letters import Chosen, refuse_unsaid

        for name in ("since", "until"):
            if which[name] is not None and which[name].tzinfo is None:
                which[name] = which[name].replace(tzinfo=UTC)
        wanted = Chosen(**{name: which[name] for name in Chosen.__slots__ if name in which})
        if does is not None:
            refuse_unsaid(wanted, is_all=every, does=does)
        rows = deed(sink, wanted)
        if output_format != "json" and one_by_one:
            for row in rows:
                terminal.show_rows(row, as_json=False)
        else:
            terminal.show_rows(rows, as_json=output_format == "json")
        return rows
