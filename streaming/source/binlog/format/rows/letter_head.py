"""What an event of rows lacks to be decoded by itself: its TABLE_MAP, and facts about its server.

A block has it in its schema's metadata (`contract.LETTER_HEAD`), a dead letter before its event.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streaming.source.binlog.format.charsets import CODECS, Charset, Charsets
from streaming.source.binlog.format.rows.maps_in_force import Shape


@dataclass(frozen=True, slots=True, eq=False)
class LetterHead:
    """``charsets``: of the table's collations. ``checksum``: the event ends in a CRC32."""

    shape: Shape
    charsets: Charsets
    is_mariadb: bool
    checksum: bool

    def told(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "is_mariadb": self.is_mariadb,
            "checksum": self.checksum,
            "charsets": {str(n): [each.codec, each.width] for n, each in self.charsets.items()},
            "table_map": base64.b64encode(self.shape).decode(),
        }

    def to_json(self) -> bytes:
        return json.dumps(self.told()).encode()

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> LetterHead:
        """Raises ValueError, KeyError, TypeError or AttributeError for what ``told`` has not
        made."""
        return cls(
            shape=base64.b64decode(told["table_map"], validate=True),
            charsets={
                int(number): _charset(codec, int(width))
                for number, (codec, width) in told["charsets"].items()
            },
            is_mariadb=bool(told["is_mariadb"]),
            checksum=bool(told["checksum"]),
        )


def _charset(codec: str, width: int) -> Charset:
    if codec not in CODECS.values():
        raise ValueError(codec)
    return Charset(codec, width)
