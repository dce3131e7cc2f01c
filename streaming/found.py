"""What a listing of the cluster shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a listing shows; ``rows`` have equal keys."""

    rows: tuple[Mapping[str, Any], ...]
    is_upright: bool = False  # one row, a line for each of its fields

    def to_json(self) -> dict[str, Any]:
        return {"rows": [dict(row) for row in self.rows]}
