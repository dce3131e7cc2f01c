"""The settings of the changefeed that does what a task file says: the same for a `run` and for a
cluster, and under the same ID."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from conf.files.reading import Document
from conf.problems import require
from conf.settings import Changefeed
from conf.sources.binlog_uri import BinlogSettings
from conf.sources.source_uri import is_binlog_uri
from conf.task.file import TaskDescription

SAID: Final = ("filter", "mysql", "start-ts", "target-ts")  # by the task file alone


def changefeed_id(task: TaskDescription) -> str:
    return f"{task.name}-{task.source_id}"


def settings_of_run(
    task: TaskDescription,
    document: Document,
    values: Mapping[str, Any],
    arguments: Mapping[str, object],
) -> tuple[Document, dict[str, Any]]:
    """As ``settings_of_task``, where ``values`` are of arguments and environment together."""
    require(
        arguments.get("changefeed-id") is None,
        f"changefeed-id: a task's changefeed is called {changefeed_id(task)}: leave it out",
    )
    if task.source_uri is not None:  # a variable of the shell is not about this task
        values = {**values, "source-uri": arguments.get("source-uri")}
    return settings_of_task(task, document, values)


def settings_of_task(
    task: TaskDescription, document: Document, values: Mapping[str, Any]
) -> tuple[Document, dict[str, Any]]:
    """The changefeed file and the values from which the settings are loaded. ``document``: of a
    changefeed file, for what a task file does not have; ``values``: of own keys, as a user gave
    them. Raises SettingError."""
    for key in SAID:
        require(
            key not in document and values.get(key) is None,
            f"{key}: a task file says what its task reads, and from where: leave it out",
        )
    given = values.get("source-uri")
    require(
        given is None or task.source_uri is None,
        "source-uri is given, and the task file has `from`: leave one of them out",
    )
    uri = given or task.source_uri
    require(
        uri is not None,
        "the task file has no `from` that says where the server is: give --source-uri "
        "mysql://user@host:3306/",
    )
    require(
        uri is not None and is_binlog_uri(uri),
        "source-uri: a task reads a database: mysql://user@host:3306/",
    )
    sink = dict(document.get("sink", {}))
    require(
        "routes" not in sink,
        "sink.routes: a task file says into which tables its own go: leave them out",
    )
    own = {"source-uri": uri, "changefeed-id": changefeed_id(task)}
    both = {**document, **task.document}
    if sink or "sink" in task.document:
        both["sink"] = {**sink, **task.document.get("sink", {})}
    return both, {**values, **task.document, **own}


def check_mode(task: TaskDescription, changefeed: Changefeed) -> None:
    """Raises SettingError where the URI says another mode than the file."""
    source = changefeed.source
    assert isinstance(source, BinlogSettings)
    require(
        source.task_mode == task.task_mode,
        f"source-uri: task-mode={source.task_mode}, and the task file says {task.task_mode}: leave "
        "it out of the URI",
    )
