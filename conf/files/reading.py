"""Read a file's TOML, and the schema file that it names."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from conf.problems import Problems, SettingError, require

Document = Mapping[str, Any]
ModelName = Literal["ChangefeedFile", "ServerFile", "GivenValues"]  # in conf/files/models.py

_SCHEMA_MOST_BYTES = 64 * 1024 * 1024  # a dump with the rows is no schema file


def read_checked(path: Path, model: ModelName = "ChangefeedFile") -> Document:
    """Parse and check the file; raises SettingError whose message starts with the file's path."""
    document = parse(path)
    refuse(check(document, model), place=f"{path}: ")
    return document


def check(
    values: Document, model: ModelName, shown: Callable[[str], str] = lambda key: key
) -> dict[str, list[str]]:
    """The errors: lines by the key at the top that they are about. ``shown`` makes the name that
    the lines have for such a key."""
    if not values:
        return {}
    from conf.files import models, refusals  # pydantic takes a while: only who checks imports it

    return refusals.check(values, getattr(models, model), shown)


def refuse(found: Mapping[str, Sequence[str]], place: str = "") -> None:
    """Raise one SettingError for all that was found wrong, if anything was."""
    problems = Problems()
    problems.found = [line for lines in found.values() for line in lines]
    problems.refuse(place)


def parse(path: Path) -> Document:
    """The file's TOML, its keys not checked yet; raises SettingError if it is not valid TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(f"{path}: cannot be read ({error.strerror})") from error
    except RecursionError:
        raise SettingError(f"{path}: not TOML: it is nested too deeply") from None
    except ValueError as error:  # also of a text that is not UTF-8, and of a number that is no int
        raise SettingError(f"{path}: not TOML: {error}") from error


def with_schema_text(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same values with `schema-text`, the content of the file that `schema-file` names,
    in place of that. Raises SettingError."""
    others = {name: each for name, each in values.items() if name != "schema-file"}
    path = values.get("schema-file")
    return {**others, "schema-text": _schema_text(Path(path))} if path else others


def _schema_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_SCHEMA_MOST_BYTES + 1)
        require(
            len(content) <= _SCHEMA_MOST_BYTES,
            f"schema-file: {path} has more than {_SCHEMA_MOST_BYTES} bytes: give table definitions "
            "alone (mysqldump --no-data)",
        )
        return content.decode()
    except OSError as error:
        raise SettingError(f"schema-file: {path} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise SettingError(f"schema-file: {path} is not UTF-8: {error}") from error
    except ValueError as error:  # the path itself: a null character
        raise SettingError(f"schema-file: {str(path)!r} cannot be read ({error})") from error
