"""Mask secrets in texts that people read (logs, errors, reports).

A value whose name says that it is a secret (a URI's parameter, a key of a file) is masked next to
that name. A value that was given to `hide` is masked everywhere, also without a name, as in the
error message of a library. A reference (`${env:NAME}`, `${file:/path}`) is no secret, and is shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "***"
HIDDEN_LENGTH = 6  # a shorter secret is masked by its name alone: it may be part of any word

_SECRET = (
    r"[\w.-]*(?:passw(?:or)?d|token|credentials?|sas[-_.]key|private[-_.]?key|secret[\w.-]*"
    r"|jaas[\w.-]*|(?:access|account|storage|keystore)[-_.]key(?:[-_.]id)?)"
)
_IS_SECRET = re.compile(_SECRET, re.IGNORECASE)
_NO_REFERENCE = r"(?!\$(?:\{|%7B)(?:env|file)(?::|%3A))"
_QUOTED = r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\''
# sasl-password=…&, password="…" (as in JAAS), AWS_SECRET_ACCESS_KEY=…
_ASSIGNED = re.compile(rf"({_SECRET}\s?=\s?){_NO_REFERENCE}(?:{_QUOTED}|[^&\s\"]+)", re.IGNORECASE)
# "etcd-password": "…", as JSON and Python's repr write it
_KEYED = re.compile(
    rf"((?:\"{_SECRET}\"|'{_SECRET}')\s?:\s?)(?![\"']\$\{{(?:env|file):)(?:{_QUOTED}|[^\s,}}]+)",
    re.IGNORECASE,
)
# Up to the last @: a user may have forgotten to write one as %40. A whole URI may have a quote or
# a slash before it; in a text those end the URI.
_USER_INFO = re.compile(rf"(://[^/\s:@\"']*):{_NO_REFERENCE}[^/\s?#\"']+@")
_USER_INFO_OF_URI = re.compile(rf"(://[^/:@]*):{_NO_REFERENCE}[^?#]+@")
# A login in the URL of a registry, which may be written with %3A and %40.
_REGISTRY = re.compile(
    rf"(schema-registry=[^&#\s]*?(?:/|%2F){{2}}[^&#\s/:@%]*(?::|%3A)){_NO_REFERENCE}"
    r"[^&#\s]+(?=@|%40)",
    re.IGNORECASE,
)
_PARAMETER = re.compile(rf"([?&]{_SECRET}=){_NO_REFERENCE}[^&#]+", re.IGNORECASE)
# In a URI that is the value of a parameter of another.
_NESTED = re.compile(
    rf"((?:%3F|%26){_SECRET}%3D){_NO_REFERENCE}(?:(?!%26)[^&#\s\"'])+", re.IGNORECASE
)

_hidden: set[str] = set()  # global, so that code that logs need not know where secrets are


def is_secret_name(name: str) -> bool:
    """Whether a parameter, key or variable of this name holds a secret."""
    return _IS_SECRET.fullmatch(name) is not None


def hide(secret: str) -> None:
    """Mask this value from now on, in any spelling that a URI, JSON or JAAS gives it. A value
    shorter than `HIDDEN_LENGTH` is not remembered."""
    if len(secret) < HIDDEN_LENGTH:
        return
    escaped = secret.replace("\\", "\\\\").replace('"', '\\"')
    _hidden.update({secret, quote(secret, safe=""), quote(secret), quote_plus(secret), escaped})


def masked_uri(uri: str) -> str:
    """The URI without the values of its secret parameters, and without a password in front of its
    host."""
    without = _NESTED.sub(rf"\1{MASK}", _PARAMETER.sub(rf"\1{MASK}", uri))
    return _USER_INFO_OF_URI.sub(rf"\1:{MASK}@", _REGISTRY.sub(rf"\1{MASK}", without))


def masked(text: str) -> str:
    """The text with all secrets masked: hidden values, and values whose names say so."""
    for secret in sorted(_hidden, key=len, reverse=True):  # a secret may be part of a longer one
        text = text.replace(secret, MASK)
    text = _USER_INFO.sub(rf"\1:{MASK}@", _REGISTRY.sub(rf"\1{MASK}", text))
    text = _NESTED.sub(rf"\1{MASK}", _ASSIGNED.sub(rf"\1{MASK}", text))
    return _KEYED.sub(rf'\1"{MASK}"', text)


def masked_values(value: Any) -> Any:
    """A JSON value (texts, mappings, lists, others) with every text in it masked."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Mapping):
        return {name: masked_values(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [masked_values(each) for each in value]
    return value
