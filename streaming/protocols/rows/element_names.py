"""The names of an ENUM or SET in one text, as TiCDC and Debezium write them."""

from __future__ import annotations

from typing import Any, Final

# Of a type whose names are not told, where a row has its values by name: a definition that comes
# later tells which names they are.
UNTOLD: Final = "longtext"


def definition(kind: str, allowed: Any) -> str:
    """The type with its names. ``kind``: enum or set; ``allowed``: names and commas between them; a
    comma in a name has a backslash before it."""
    if type(allowed) is not str:
        return UNTOLD
    parts = allowed.replace("\\,", "\0").split(",")
    names = (part.replace("\0", ",").replace("'", "''") for part in parts)
    return kind + "('" + "','".join(names) + "')"
