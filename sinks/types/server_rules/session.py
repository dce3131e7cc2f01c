"""The session that ran a DDL, as far as its server's rules depend on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_STRICT: Final = (1 << 21) | (1 << 22)  # STRICT_TRANS_TABLES, STRICT_ALL_TABLES
_TRUNCATES: Final = 1 << 32  # MySQL's TIME_TRUNCATE_FRACTIONAL
_PADS: Final = 1 << 31  # PAD_CHAR_TO_FULL_LENGTH
_ROUNDS: Final = 1 << 34  # MariaDB's TIME_ROUND_FRACTIONAL


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSession:
    """``sql_mode``: its bits; None: not told. ``time_zone``: empty where it is not told.
    ``began_us``: when its statement began, in microseconds since 1970; None: not told."""

    is_mariadb: bool
    sql_mode: int | None = None
    time_zone: str = ""
    began_us: int | None = None
    implicit_timestamps: bool = False  # explicit_defaults_for_timestamp is off

    @property
    def is_strict(self) -> bool:
        return bool((self.sql_mode or 0) & _STRICT)

    @property
    def rounds(self) -> bool:
        """Whether a fraction of a second that has no place is rounded; else it is cut."""
        mode = self.sql_mode or 0
        return bool(mode & _ROUNDS) if self.is_mariadb else not mode & _TRUNCATES

    @property
    def drops_empty(self) -> bool:
        """Whether the empty DEFAULT of a type that may have none is taken and forgotten."""
        return not self.is_mariadb and not self.is_strict

    @property
    def pads(self) -> bool:
        """Whether a CHAR is read with the blanks up to its length."""
        return bool((self.sql_mode or 0) & _PADS)
