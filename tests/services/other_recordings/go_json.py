"""JSON as Go writes it: what is not changed is written back byte for byte."""

from __future__ import annotations

import json
from typing import Any

_PLAIN = {
    **{code: f"\\u{code:04x}" for code in range(0x20)},
    **{ord(c): f"\\{s}" for c, s in zip('"\\\n\r\t', '"\\nrt', strict=True)},
}
_ESCAPES = {**_PLAIN, **{code: f"\\u{code:04x}" for code in (0x2028, 0x2029, *b"<>&")}}


class Number(str):
    """A number as it stands in the text."""

    __slots__ = ()


def loads(text: bytes | str) -> Any:
    return json.loads(text, parse_float=Number, parse_int=Number, parse_constant=Number)


def dumps(value: Any, *, for_html: bool = True) -> str:
    """``for_html``: with < > & and separators of lines escaped."""
    return _written(value, _ESCAPES if for_html else _PLAIN)


def _written(value: Any, escapes: dict[int, str]) -> str:
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, str):
        return f'"{value.translate(escapes)}"'
    if isinstance(value, dict):
        items = (f"{_written(k, escapes)}:{_written(v, escapes)}" for k, v in value.items())
        return f"{{{','.join(items)}}}"
    if isinstance(value, list):
        return f"[{','.join(_written(each, escapes) for each in value)}]"
    return json.dumps(value)
