"""Statistics that a checkpoint keeps as a struct, as the JSON text that a commit would have.

A value that JSON cannot tell exactly is left out: no bound, no skipping, never a wrong one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any


def stats_text(value: Any) -> str | None:
    """``value``: a row of ``stats_parsed``, or a part of one; None where nothing is in it."""
    if isinstance(value, Mapping):
        parts = ((name, stats_text(each)) for name, each in value.items())
        found = [f"{json.dumps(name, ensure_ascii=False)}:{text}" for name, text in parts if text]
        return "{" + ",".join(found) + "}" if found else None
    if isinstance(value, Decimal):  # digit by digit: a double would round it
        return format(value, "f") if value.is_finite() else None
    exact = _exact(value)
    return None if exact is None else json.dumps(exact, ensure_ascii=False)


def _exact(value: Any) -> Any:
    """What ``json`` writes without loss; None: nothing does."""
    match value:
        case bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case datetime():
            zone = "Z" if value.tzinfo is not None else ""
            return value.replace(tzinfo=None).isoformat(timespec="microseconds") + zone
        case date():
            return value.isoformat()
        case _:
            return None
