"""Keys that a comparison which is only nearly exact takes for one another."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

TEXT_KEYS = (
    "",
    "a",
    "A",
    "a ",
    "it's",
    'say "x"',
    "back\\slash",
    "`tick`",
    "ü列\U0001f600",
    "nul\x00",
    "%_",
)
KEY_TYPES: Sequence[tuple[str, Sequence[Any]]] = (
    ("varchar(50)", TEXT_KEYS),
    ("varbinary(50)", [text.encode() for text in TEXT_KEYS] + [b"\xff\x00", bytes(range(256))]),
    ("bigint unsigned", [Decimal(0), Decimal(2**63), Decimal(2**64 - 1)]),
    ("decimal(38,10)", [Decimal("-1E-10"), Decimal("0"), Decimal("1234567890123456789.5")]),
    ("tinyint", [-128, 0, 127]),
    ("bigint", [-(2**63), 0, 2**63 - 1]),
    ("double", [-1.5e300, 5e-324, 0.1]),
    ("date", [date(1000, 1, 1), date(2024, 2, 29), date(9999, 12, 31)]),
    (
        "datetime(6)",
        [
            datetime(1000, 1, 1),  # noqa: DTZ001
            datetime(2024, 3, 31, 2, 30, 0, 1),  # noqa: DTZ001
            datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
        ],
    ),
    (
        "timestamp(6)",
        [
            datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
            datetime(2024, 3, 31, 2, 30, 0, 1, tzinfo=UTC),
            datetime(2038, 1, 19, 3, 14, 7, 999999, tzinfo=UTC),
        ],
    ),
)

HARDEST = ("varchar(50)", "varbinary(50)", "timestamp(6)")
