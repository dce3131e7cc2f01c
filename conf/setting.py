"""How a setting is declared: as a field of a frozen dataclass, with its key and a text for docs."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any

from annotated_types import Ge, Gt

Above0 = Annotated[int, Gt(0)]
NotNegative = Annotated[int, Ge(0)]
Seconds = Annotated[float, Gt(0)]
SecondsOrNone = Annotated[float, Ge(0)]


def setting(name: str, default: Any = None, says: str = "", *, is_secret: bool = False) -> Any:
    """A field that is set by one key: of a file, as an environment variable or as an argument.

    ``says`` is what docs/configuration.md says of it. Bounds stand in the field's type."""
    return field(default=default, repr=not is_secret, metadata={"key": name, "says": says})
