"""pydantic's findings as our sentences: one line for each key."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from conf.masking import is_secret_name
from conf.problems import SettingError, unknown

KINDS = {
    "string_type": "a string",
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list of strings",
    "dict_type": "a table: [{path}]",
    "model_type": "a table: [{path}]",
    "list_type": "a table: [[{path}]]",
}
BOUNDS = {
    "greater_than": "above {:.0f}",
    "greater_than_equal": "{:.0f} or more",
    "less_than_equal": "{:.0f} or less",
}
NO_OTHERS: Mapping[str, str] = {}
MOST_LISTED = 8
_MAY_HOLD_SECRETS = ("storage-options", "kafka-config", "source-uri", "etcd")
_CHOICE = re.compile(r"'([^']*)'")


def check(
    values: Mapping[str, Any],
    model: type[BaseModel],
    shown: Callable[[str], str],
    kinds: Mapping[str, str] = NO_OTHERS,
) -> dict[str, list[str]]:
    """See ``conf/files/reading.py``. ``kinds``: words for what a TOML file calls otherwise."""
    found: dict[str, list[str]] = {}
    try:
        model.model_validate(values)
    except ValidationError as error:
        for each in error.errors(include_url=False):
            key = str(each["loc"][0])
            names = [part for part in each["loc"][1:] if isinstance(part, str)]
            line = _line(each, ".".join((shown(key), *names)), model, {**KINDS, **kinds})
            found.setdefault(key, []).append(line)
    return found


def _line(error: ErrorDetails, path: str, model: type[BaseModel], kinds: Mapping[str, str]) -> str:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return unknown("key", path, _keys(model, error["loc"][:-1]))
    if kind == "literal_error":
        choices = _CHOICE.findall(context["expected"])
        return f"{path}: {unknown('value', str(value), choices, most_listed=MOST_LISTED)}"
    if isinstance(said := context.get("error"), SettingError):
        return f"{path}{said}" if str(said).startswith(":") else f"{path} {said}"
    if kind in BOUNDS:
        return f"{path} must be {BOUNDS[kind].format(*context.values())}, not {value}"
    if kind not in kinds:  # such as a text that is not Unicode
        return f"{path} is missing" if kind == "missing" else f"{path}: {error['msg']}"
    is_listed = kind == "string_type" and isinstance(error["loc"][-1], int)
    wanted = kinds["tuple_type" if is_listed else kind].format(path=path)
    is_hidden = is_secret_name(path) or path.endswith(_MAY_HOLD_SECRETS)
    return f"{path} must be {wanted}, not " + (
        f"{type(value).__name__} value" if is_hidden else repr(value)
    )


def _keys(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """The keys of the table that stands there."""
    of: Any = model
    for name in loc:
        if get_origin(of) in (dict, list, tuple):
            of = get_args(of)[1 if get_origin(of) is dict else 0]
        elif isinstance(name, str):
            fields = of.model_fields.values()
            of = next(each.annotation for each in fields if each.alias == name)
            if get_origin(of) in (Union, UnionType):  # … | None
                of = get_args(of)[0]
    return [str(each.alias) for each in of.model_fields.values()]
