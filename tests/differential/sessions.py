"""Random sessions: what a statement of one means depends on them. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass

_STRICT = ("STRICT_TRANS_TABLES", "STRICT_ALL_TABLES")
_ANY = (
    *("ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "PAD_CHAR_TO_FULL_LENGTH", "ALLOW_INVALID_DATES"),
    *("NO_ZERO_DATE", "NO_ZERO_IN_DATE", "ERROR_FOR_DIVISION_BY_ZERO", "NO_AUTO_VALUE_ON_ZERO"),
)
_OF_MARIADB = ("TIME_ROUND_FRACTIONAL",)
_OF_MYSQL = ("TIME_TRUNCATE_FRACTIONAL",)
_ZONES = ("+00:00", "+00:00", "SYSTEM", "-07:00", "+05:30")
_SECONDS = ("1700000000.654321", "1600000000", "1583020799.9")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """``mode``: "strict" or "lax". ``settings``: statements that make a connection so."""

    mode: str
    settings: tuple[str, ...]


LAX = Session(
    mode="lax", settings=("SET sql_mode = '', time_zone = '+00:00'", "SET timestamp = DEFAULT")
)


def random_session(dice: random.Random, is_mariadb: bool) -> Session:
    is_strict = dice.random() < 0.6
    modes = [dice.choice(_STRICT)] if is_strict else []
    others = (*_ANY, *(_OF_MARIADB if is_mariadb else _OF_MYSQL))
    modes += [each for each in others if dice.random() < 0.15]
    zone = dice.choice(_ZONES)
    second = dice.choice(_SECONDS) if dice.random() < 0.3 else "DEFAULT"
    settings = [
        f"SET sql_mode = '{','.join(modes)}', time_zone = '{zone}'",
        f"SET timestamp = {second}",
    ]
    is_explicit = int(dice.random() > 0.1)
    settings.append(f"SET explicit_defaults_for_timestamp = {is_explicit}")
    return Session(mode="strict" if is_strict else "lax", settings=tuple(settings))
