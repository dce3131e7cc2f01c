"""``tidelake ddl``: DDLs that hold a table or have stopped a changefeed, and how to go on."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from conf.load import load_server, load_sink
from streaming.cli.options import (
    ClusterId,
    ConfigFile,
    Etcd,
    Format,
    Id,
    OutputFormat,
    ShownChangefeed,
    SinkUri,
    TableOption,
    reported,
    say,
)

ddl = typer.Typer(
    help="Show the DDLs that hold a table or a changefeed, and decide how it goes on.",
    no_args_is_help=True,
)

CommitTs = Annotated[
    int, typer.Option(help="The DDL's commit-ts, as the error and `ddl list` show it.")
]
Sql = Annotated[
    str | None,
    typer.Option(
        help="The statement to run instead, such as 'ALTER TABLE …'. Without it, the DDL's own "
        "statement is tried again."
    ),
]


@ddl.command("list")
def list_ddls(
    *,
    sink_uri: SinkUri = None,
    changefeed_id: ShownChangefeed = None,
    config: ConfigFile = None,
    output_format: Format = "table",
) -> None:
    """List the DDLs that hold a table or have stopped a changefeed, with each decision.

    Prints the table, the commit-ts, the statement and the reason why it cannot be run.
    """
    with reported():
        sink = load_sink(config=config, environment=os.environ, sink_uri=sink_uri)
        from streaming.cli import screen
        from streaming.operations.orders import ddl

        screen.show_rows(ddl.list_ddls(sink, changefeed_id), as_json=output_format == "json")


@ddl.command()
def skip(
    *,
    changefeed_id: Id,
    table_name: TableOption,
    commit_ts: CommitTs,
    sink_uri: SinkUri = None,
    config: ConfigFile = None,
    etcd: Etcd = None,
    cluster_id: ClusterId = None,
    output_format: Format = "table",
) -> None:
    """Skip a DDL that holds a table or a changefeed: the target table stays as it is.

    A changefeed that runs goes on within seconds. Else start the `tidelake run` again; in a cluster
    give --etcd, which also resumes the failed changefeed. Giving the command twice does no harm.

    Example:
      tidelake ddl skip -c shop --table shop.orders --commit-ts 451023 --sink-uri delta:///data/lake
    """
    _order("skip", **locals())


@ddl.command()
def apply(
    *,
    changefeed_id: Id,
    table_name: TableOption,
    commit_ts: CommitTs,
    sql: Sql = None,
    sink_uri: SinkUri = None,
    config: ConfigFile = None,
    etcd: Etcd = None,
    cluster_id: ClusterId = None,
    output_format: Format = "table",
) -> None:
    """Run another statement in place of a DDL that holds a table or a changefeed, or try it again.

    Without --sql the DDL itself is tried again: after an upgrade, or when its obstacle is gone.
    A changefeed that runs goes on within seconds. Else start the `tidelake run` again; in a cluster
    give --etcd, which also resumes the failed changefeed.

    Example:
      tidelake ddl apply -c shop --table shop.orders --commit-ts 451023 \\
        --sink-uri delta:///data/lake --sql 'ALTER TABLE orders DROP COLUMN kind'
    """
    _order("apply", **locals())


def _order(
    action: Literal["skip", "apply"],
    *,
    changefeed_id: str,
    table_name: str,
    commit_ts: int,
    sql: str | None = None,
    sink_uri: str | None,
    config: Path | None,
    etcd: str | None,
    cluster_id: str | None,
    output_format: OutputFormat,
) -> None:
    with reported(), ExitStack() as stack:
        sink = load_sink(config=config, environment=os.environ, sink_uri=sink_uri)
        cluster = load_server(
            config=config,
            environment=os.environ,
            arguments={"etcd": etcd, "cluster-id": cluster_id},
            model="ChangefeedFile",
        )
        from streaming.cli import screen
        from streaming.operations.cluster import operator
        from streaming.operations.orders.ddl import go_on, order_ddl

        op = None
        if not cluster.etcd.embedded:
            op = stack.enter_context(operator(cluster.etcd, cluster.transport, say))
        ordered = order_ddl(
            sink,
            changefeed_id=changefeed_id,
            table=table_name,
            commit_ts=commit_ts,
            action=action,
            sql=sql,
        )
        after = "that has been done already" if ordered.is_done else go_on(ordered.changefeed, op)
        if output_format == "json":
            screen.show_rows([{**ordered.to_row(), "next": after}], as_json=True)
            return
        query = sql or ordered.ddl.query
        runs = "is passed over" if action == "skip" else f"is run as: {query}"
        typer.echo(f"{table_name}: the DDL at commit-ts {commit_ts} {runs}")
        typer.echo(after)
