"""The promise of a single message, for who looks for a partition's first one."""

from __future__ import annotations

import json
from typing import Final

_TYPE: Final = "TIDB_WATERMARK"


def watermark_of(value: bytes | None) -> int | None:
    """The promise of one message, or None: of any other, and of what cannot be read."""
    if value is None or _TYPE.encode() not in value:
        return None
    try:
        message = json.loads(value)
        is_watermark = message["type"] == _TYPE
        return int(message["_tidb"]["watermarkTs"]) if is_watermark else None
    except (ValueError, KeyError, TypeError):
        return None
