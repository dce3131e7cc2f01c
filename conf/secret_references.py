"""References to secrets: `${env:NAME}` or `${file:/path}` in the place of a secret value.

The forms are Kafka Connect's. A command line, a file or etcd then holds only the reference; each
capture looks up the secret itself when it needs it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast

from conf.problems import SettingError, require

_FORM = re.compile(r"\$\{(?P<kind>[A-Za-z]*):(?P<where>[^{}]*)\}")
KINDS = ("env", "file")


@dataclass(frozen=True, slots=True)
class Reference:
    """``where`` is the name of an environment variable, or the absolute path of a file that holds
    the secret and nothing else."""

    kind: Literal["env", "file"]
    where: str

    def __str__(self) -> str:
        return f"${{{self.kind}:{self.where}}}"


def parse_reference(name: str, text: str) -> Reference | None:
    """The reference that the text is; None for a plain value. Raises SettingError for a reference
    that is malformed; the message names the setting and shows no secret."""
    found = _FORM.search(text)
    if found is None:
        return None
    form = "write ${env:NAME} or ${file:/path}"
    if found.group() != text:
        raise SettingError(f"{name}: a reference must be the whole value: {form}")
    kind, where = found["kind"], found["where"]
    require(kind in KINDS, f"{name}: ${{{kind}:…}} is not known: {form}")
    require(where != "", f"{name}: {text} names nothing: {form}")
    require(
        kind != "file" or where.startswith("/"),
        f"{name}: {text} is relative, and captures run anywhere: give an absolute path",
    )
    return Reference(cast(Literal["env", "file"], kind), where)
