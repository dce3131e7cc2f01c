"""Reads a task file of DM (YAML), and makes of it the changefeed that does what it says."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from conf.files.reading import Document, refuse
from conf.forms import is_id
from conf.problems import Problems, SettingError, require
from conf.sources.binlog_uri import OF_A_DUMP

if TYPE_CHECKING:
    from conf.task import models


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDescription:
    """``document`` has the tables of a changefeed file that the task file fills: `filter`, `mysql`,
    `sink`, and `case-sensitive`. ``idle_keys`` are keys that were given and change nothing here."""

    name: str
    task_mode: str
    source_id: str
    source_uri: str | None  # None: the file does not say where the server is
    document: Document
    idle_keys: tuple[str, ...]


def read_task(path: Path) -> TaskDescription:
    """Raises SettingError, whose message starts with the file's path."""
    from conf.files import refusals  # pydantic takes a while
    from conf.task import models

    values = _without_nulls(_parsed(path))
    require(isinstance(values, dict), f"{path}: a task file has keys, such as name and task-mode")
    kinds = {"dict_type": "a mapping", "model_type": "a mapping", "list_type": "a list"}
    refuse(refusals.check(values, models.TaskFile, str, kinds), f"{path}: ")
    try:
        return _described(models.TaskFile.model_validate(values), tuple(_idle(values)))
    except SettingError as error:
        raise SettingError(*error.problems, place=f"{path}: ") from error


def _idle(values: Mapping[str, Any]) -> Collection[str]:
    from conf.task import models

    return dict.fromkeys(models.idle_keys(models.TaskFile.model_validate(values)))


def _parsed(path: Path) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Refuses a key that stands twice in a mapping, as DM does."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
            own = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
            twice = sorted({str(each) for each in own if own.count(each) > 1})
            require(
                not twice,
                f"{path}: line {node.start_mark.line + 1}: {''.join(twice[:1])} stands twice",
            )
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader)
    except OSError as error:
        raise SettingError(f"{path}: cannot be read ({error.strerror})") from error
    except RecursionError:
        raise SettingError(f"{path}: not YAML: it is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise SettingError(f"{path}: not UTF-8: {error}") from error
    except yaml.MarkedYAMLError as error:  # its own text quotes the file, and so a password
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise SettingError(f"{path}: line {line}: not YAML: {error.problem}") from None
    except yaml.YAMLError:
        raise SettingError(
            f"{path}: not YAML: it has a character that YAML does not allow"
        ) from None


def _without_nulls(found: Any) -> Any:
    """A key without a value is not given."""
    if isinstance(found, dict):
        return {name: _without_nulls(each) for name, each in found.items() if each is not None}
    return [_without_nulls(each) for each in found] if isinstance(found, list) else found


def _described(file: models.TaskFile, idle: tuple[str, ...]) -> TaskDescription:
    from conf.task import upstream

    sources = [each.source_id for each in file.mysql_instances]
    require(
        len(sources) == 1,
        f"mysql-instances: {len(sources)} of them ({', '.join(sources)}), and a task reads one "
        "server: write a task file for each, with a name of its own, whose routes lead into target "
        "tables of its own. A view over these tables unites shards of several servers",
    )
    (instance,) = file.mysql_instances
    problems = Problems()
    for key, text in (("name", file.name), ("source-id", instance.source_id)):
        with problems.noted():
            require(is_id(text), f"{key} {text!r}: letters and digits, joined by single hyphens")
    with problems.noted():
        mysql = upstream.parameters(file, instance)
    with problems.noted():
        taken = upstream.filter_table(file, instance)
    with problems.noted():
        sink = upstream.sink_table(file, instance)
    problems.refuse()
    return TaskDescription(
        name=file.name,
        task_mode=file.task_mode,
        source_id=instance.source_id,
        source_uri=_uri(instance.server) if instance.server is not None else None,
        document={
            "mysql": mysql,
            "filter": taken,
            "case-sensitive": file.case_sensitive,
            **({"sink": sink} if sink else {}),
        },
        idle_keys=(*idle, *_of_other_modes(file, instance)),
    )


def _of_other_modes(file: models.TaskFile, instance: models.Instance) -> Iterator[str]:
    if instance.meta is not None and file.task_mode != "incremental":
        yield "mysql-instances.meta"
    if file.task_mode not in OF_A_DUMP:
        if instance.loader is not None and instance.loader.dir:
            yield "mysql-instances.loader.dir"
        yield from (f"loaders.{name}.dir" for name, each in file.loaders.items() if each.dir)


def _uri(server: models.Server) -> str:
    host = f"[{server.host}]" if ":" in server.host else server.host
    return f"mysql://{quote(server.user, safe='${}')}@{host}:{server.port}/"
