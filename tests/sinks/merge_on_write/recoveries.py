"""DROP TABLE of table a, and RECOVER TABLE of it, as the owner does them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coordination.model import Ts
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.recover import TableRecovery, kept_place, not_kept, recover
from sinks.target.engine_port import Applied, Skipped
from sinks.target.table_properties import DdlIdentity
from sinks.target.target_table import inspect
from tests.sinks.merge_on_write.ddls import C
from tests.sinks.merge_on_write.kinds_of_ddl import table_ddl
from tests.sinks.merge_on_write.renames import named, origin


def drop(
    engine: MergeOnWriteEngine, folder: str, commit_ts: int = C, on_drop: Any = "keep"
) -> None:
    ddl = DdlIdentity(commit_ts=Ts(commit_ts), order=0, query="DROP TABLE `shop`.`a`")
    engine.alter(table_ddl(target=named(f"{folder}/a"), ddl=ddl, on_drop=on_drop))


def recovered(
    engine: MergeOnWriteEngine,
    folder: str,
    name: str = "a",
    commit_ts: int = C + 10,
    incarnation: int = 1,
) -> Applied | Skipped:
    """As the owner does it, of table a."""
    uri, target = f"{folder}/a", named(f"{folder}/{name}", incarnation=incarnation)
    kept = kept_place(named(uri).name, uri, inspect(uri, {}))
    state = inspect(kept, {})
    if state is None:
        raise not_kept(named(uri).name, kept)
    assert state.schema is not None
    return recover(
        engine,
        TableRecovery(
            kept=kept,
            target=replace(target, schema=state.schema),
            ddl=identity(commit_ts),
            properties=origin(commit_ts, incarnation),
        ),
    )


def identity(commit_ts: int = C + 10) -> DdlIdentity:
    return DdlIdentity(commit_ts=Ts(commit_ts), order=0, query="RECOVER TABLE a")


def came_back(folder: str) -> None:
    """As c, by an engine of its own."""
    engine = MergeOnWriteEngine({}, keeps_up=False)
    recovered(engine, folder, "c")
    engine.close()
