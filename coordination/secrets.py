"""Secrets when they are used: a reference is looked up, and its value is masked in all logs from
then on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from conf.masking import hide, is_secret_name
from conf.problems import SettingError
from conf.secret_references import Reference, parse_reference
from coordination.errors import ConfigError

MAX_BYTES: Final = 64 * 1024  # of a file: a larger one is no secret


def revealed(name: str, text: str) -> str:
    """The value of a setting that may be a reference. If the setting is a secret, its value is
    masked in logs from now on.

    A reference is looked up at each call, so a changed file counts from the next connection on.
    Raises ConfigError if this process cannot read it."""
    try:
        reference = parse_reference(name, text)
    except SettingError as error:
        raise ConfigError(str(error)) from error
    value = text if reference is None else _looked_up(name, reference)
    if is_secret_name(name):
        hide(value)
    return value


def revealed_options(options: Iterable[tuple[str, str]] | Mapping[str, str]) -> dict[str, str]:
    """``[storage-options]`` with their references looked up, as they are passed to the storage.
    Raises ConfigError."""
    items = options.items() if isinstance(options, Mapping) else options
    return {name: revealed(f"storage-options.{name}", value) for name, value in items}


def _looked_up(name: str, reference: Reference) -> str:
    if reference.kind == "env":
        value = os.environ.get(reference.where, "")
        if not value:
            raise ConfigError(
                f"{name}: the variable {reference.where} of {reference} is not set in the "
                "environment of this process"
            )
        return value
    try:
        with Path(reference.where).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        text = content.decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"{name}: the file of {reference} cannot be read here: {why}") from None
    if not text or len(content) > MAX_BYTES:
        what = "is empty" if not text else "is too large for a secret"
        raise ConfigError(f"{name}: the file of {reference} {what}")
    return text
