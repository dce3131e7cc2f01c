"""TiDB's numbers of DDLs, by the names that canal-json has for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_DDL_TYPES: Final[Mapping[int, str]] = {
    3: "CREATE",
    4: "ERASE",
    11: "TRUNCATE",
    **dict.fromkeys((14, 47), "RENAME"),
    **dict.fromkeys((7, 9, 32), "CINDEX"),
    **dict.fromkeys((8, 10, 33), "DINDEX"),
    **dict.fromkeys((5, 6, 12, 13, 15, 17, 18, 19, 20, 22, 23, 37, 38, 41, 61), "ALTER"),
}


def ddl_type(number: int) -> str:
    return _DDL_TYPES.get(number, "QUERY")
