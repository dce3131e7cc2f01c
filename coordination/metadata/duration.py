"""Durations in a changefeed's config: a number of nanoseconds, as Go writes it, or a text."""

from __future__ import annotations

import re
from typing import Final

from coordination.errors import ConfigError

_NS_PER_MS: Final = 1_000_000
_UNIT_MS: Final = {"ms": 1.0, "s": 1_000.0, "m": 60_000.0, "h": 3_600_000.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


def duration_ms(name: str, value: object) -> int:
    """The duration in ms; `value` is a text such as ``10m`` or ``1h30m``, or nanoseconds such as
    600000000000. `name` is for the message. Raises ConfigError unless it is 1 ms or more."""
    found = value // _NS_PER_MS if isinstance(value, int) else _parsed_ms(str(value))
    if found <= 0:
        raise ConfigError(f"{name} {value!r} must be a duration above 0, as 10m")
    return found


def _parsed_ms(text: str) -> int:
    parts = _PART.findall(text)
    if "".join(number + unit for number, unit in parts) != text:
        return 0
    return int(sum(float(number) * _UNIT_MS[unit] for number, unit in parts))
