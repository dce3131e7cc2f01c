"""What a row of csv lacks to be decoded by itself: its table's columns, and how the file is
written. A block has it in its schema's metadata (`contract.LETTER_HEAD`), a dead letter before its
row."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Final

from conf.sources.csv_format import CsvFormat
from coordination.model import TableName
from sinks.types.mysql_type import BINARY_TYPES, MySQLType

MAGIC: Final = b"tidelake csv row\n"


@dataclass(frozen=True, slots=True)
class TableHead:
    """``columns``: name and type of each value of a row, in their order; ``key``: the primary
    key; ``others``: what a row may have instead, as its number of fields tells."""

    name: TableName
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    csv: CsvFormat
    others: tuple[TableHead, ...] = ()

    @property
    def fields(self) -> int:
        return self.before + len(self.columns)

    @property
    def before(self) -> int:
        """How many fields stand before the values."""
        return 4 + self.csv.has_old + self.csv.has_handle_key

    @property
    def binary(self) -> frozenset[str]:
        """The columns whose values are bytes, in base64 or hexadecimal digits."""
        return frozenset(n for n, text in self.columns if _name(text) in BINARY_TYPES)

    def to_json(self) -> bytes:
        told = {
            "schema": self.name.schema,
            "table": self.name.table,
            "columns": [list(each) for each in self.columns],
            "key": list(self.key),
            "csv": asdict(self.csv),
        }
        return MAGIC + json.dumps(told, ensure_ascii=False).encode()

    @classmethod
    def of(cls, told: bytes) -> TableHead:
        """Raises ValueError, KeyError or TypeError for what `to_json` has not made."""
        fields: dict[str, Any] = json.loads(told.removeprefix(MAGIC))
        return cls(
            name=TableName(fields["schema"], fields["table"]),
            columns=tuple((str(name), str(text)) for name, text in fields["columns"]),
            key=tuple(map(str, fields["key"])),
            csv=CsvFormat(**fields["csv"]),
        )


@lru_cache(maxsize=1024)
def _name(text: str) -> str:
    try:
        return MySQLType.parse(text).name
    except ValueError:
        return text
