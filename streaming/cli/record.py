"""``tidelake record``: a recording of a topic, for a replay or a bug report."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from conf.sources.source_uri import parse_source_uri
from streaming.cli.options import reported

PLACE = "TOPIC/PARTITION=OFFSET"
Source = Annotated[
    str, typer.Option("--source-uri", help="The topic, as for `tidelake run`.", metavar="URI")
]
Output = Annotated[
    Path, typer.Option("--output", "-o", help="The file: .jsonl, or .jsonl.gz to pack it.")
]
Since = Annotated[
    datetime | None,
    typer.Option(help="From messages of this time on; UTC, ISO 8601. Without it, from the start."),
]
Until = Annotated[
    datetime | None, typer.Option(help="Up to messages of this time. Without it, to the end.")
]
From = Annotated[
    list[str] | None,
    typer.Option("--from", help="From this offset of a partition on; repeatable.", metavar=PLACE),
]
To = Annotated[
    list[str] | None,
    typer.Option("--to", help="Up to before this offset; repeatable.", metavar=PLACE),
]
Mask = Annotated[
    bool,
    typer.Option(
        "--mask",
        help="Exchange letters and digits of texts, JSON and binary values. Numbers, dates, names "
        "and DDLs stay: look at the file before you give it away.",
    ),
]


def record(
    *,
    source_uri: Source,
    output: Output,
    since: Since = None,
    until: Until = None,
    begin: From = None,
    end: To = None,
    mask: Mask = False,
) -> None:
    """Record the messages of a topic in a file, which `tidelake run` plays without a broker.

    A recording with a bug in it is the best bug report. The command records the messages
    that are in the topic when it begins, between two times or offsets.

    Example:
      tidelake record --source-uri 'kafka://127.0.0.1:9092/shop?protocol=canal-json' \\
        --since 2026-11-25T09:00:00 --mask --output shop.jsonl.gz
      tidelake run --sink-uri delta:///data/lake --source-uri \\
        'file:///data/shop.jsonl.gz?protocol=canal-json&enable-tidb-extension=true'
    """
    with reported():
        from streaming.cli import terminal
        from streaming.operations.recording import record_topic

        with terminal.bar("messages") as told:
            count = record_topic(
                parse_source_uri(source_uri),
                output,
                since=since,
                until=until,
                begin=begin or (),
                end=end or (),
                mask=mask,
                told=told,
            )
        typer.echo(f"recorded {count} messages in {output}")
