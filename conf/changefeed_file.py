"""Read a changefeed file (TOML) and check that every key in it is known, built and of its kind."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conf.masking import is_secret_name
from conf.problems import Problems, SettingError, require, unknown
from conf.setting_keys import CHANGEFEED_FILE, KINDS, Entry, Ignored, NotBuilt, Table, UsedKey

Document = Mapping[str, Any]

_MAY_HOLD_SECRETS = ("storage-options", "kafka-config", "source-uri", "etcd")
_SCHEMA_MOST_BYTES = 64 * 1024 * 1024  # a dump with the rows is no schema file


def read_checked(path: Path, table: Table = CHANGEFEED_FILE) -> Document:
    """Parse and check the file; raises SettingError whose message starts with the file's path."""
    document = parse(path)
    problems = Problems()
    with problems.noted():
        check(document, table)
    problems.refuse(f"{path}: ")
    return document


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


def check(document: Document, table: Table, path: str = "") -> None:
    """Check every key of a table, and of the tables in it. Raises one SettingError that lists all
    keys that are refused. ``path`` is what stands before a key's name in the messages."""
    problems = Problems()
    for name, value in document.items():
        full = f"{path}{name}"
        with problems.noted():
            require(name in table, unknown("key", full, table))
            _check_entry(full, value, table[name])
    problems.refuse()


def _check_entry(path: str, value: Any, entry: Entry) -> None:
    match entry:
        case UsedKey():
            check_kind(path, value, entry)
        case NotBuilt(reason, harmless):
            require(value in harmless, f"{path} is not built yet ({reason}): leave it out")
        case Ignored():
            pass
        case _:
            keys: Table = entry[0] if isinstance(entry, list) else entry
            rows: Any = value if isinstance(entry, list) else [value]
            form = f"[[{path}]]" if isinstance(entry, list) else f"[{path}]"
            is_table = isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
            require(is_table, f"{path} must be a table: {form}")
            problems = Problems()
            for row in rows:
                with problems.noted():
                    check(row, keys, f"{path}.")
            problems.refuse()


def check_kind(path: str, value: Any, entry: UsedKey) -> None:
    """Raise SettingError unless the value is of the entry's kind and each of its texts is one of
    the entry's choices. The message does not show a value that may hold a secret."""
    if not _is_kind(value, entry.kind):
        is_hidden = is_secret_name(path) or path.endswith(_MAY_HOLD_SECRETS)
        shown = f"{type(value).__name__} value" if is_hidden else repr(value)
        raise SettingError(f"{path} must be {KINDS[entry.kind]}, not {shown}")
    problems = Problems()
    for text in value if isinstance(value, list) else [value]:
        with problems.noted():
            if entry.choices:
                _check_choice(path, text, entry)
            if path.endswith("ignore-sql"):
                try:
                    re.compile(text)
                except re.error as error:
                    says = f"{text!r} is not a regular expression: {error}"
                    raise SettingError(f"{path}: {says}") from error
    problems.refuse()


def _check_choice(path: str, text: str, entry: UsedKey) -> None:
    choices = entry.choices
    require(text not in entry.replaced, f"{path} {text!r}: {entry.replaced.get(text)}")
    require(text in choices, f"{path}: {unknown('value', text, choices, most_listed=8)}")


def _is_kind(value: Any, kind: str) -> bool:
    match kind:
        case "text":
            return isinstance(value, str)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "texts":
            return isinstance(value, list) and all(isinstance(text, str) for text in value)
        case _:
            return isinstance(value, dict)
