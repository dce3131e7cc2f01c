"""Which engine commits a table's changes. Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from coordination.errors import ConfigError, TidelakeError

EngineName = Literal["merge-on-write", "spark"]
EngineSetting = Literal["auto", "merge-on-write", "spark"]

LOCAL = frozenset({"", "file"})
CONDITIONAL_PUT_ONLY = frozenset({"s3", "s3a"})  # no put-if-absent in Spark's default log store
BOTH = LOCAL | {"abfs", "abfss", "az", "gs"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """The rule of one sink. Made by ``engine_choice``, which refuses combinations that are not
    safe."""

    setting: EngineSetting
    only: EngineName | None  # the one engine that the warehouse's scheme allows; None: both

    def choose(self, table: str, reason: str | None) -> EngineName:
        """The engine for one write. ``reason``: why merge-on-write cannot write the table; None
        where it can. Raises TidelakeError where no engine may write it."""
        wanted = self.only or (None if self.setting == "auto" else self.setting)
        if wanted == "spark":
            return wanted
        if reason is None:
            return "merge-on-write"
        if wanted is None:
            return "spark"
        way_out = (
            "undo that, or drop the table and let it be made anew"
            if self.only
            else "undo that, or use apply-engine = 'auto'"
        )
        raise TidelakeError(
            f"table {table}: apply engine merge-on-write cannot write it: {reason}; {way_out}"
        )


def engine_choice(
    setting: EngineSetting, warehouse: str, *, allow_unsafe_commits: bool
) -> EngineChoice:
    """The rule for this sink. Raises ConfigError where the setting is not safe on the warehouse's
    scheme: two different ways to commit on one log can lose commits."""
    only: EngineName | None = None
    scheme = scheme_of(warehouse)
    if scheme in CONDITIONAL_PUT_ONLY:
        if setting == "spark" and not allow_unsafe_commits:
            raise ConfigError(
                f"apply-engine 'spark' can lose commits on {scheme}://, which has no put-if-absent "
                "for Spark; use 'auto' or 'merge-on-write', or set allow-unsafe-commits = true"
            )
        only = "spark" if setting == "spark" else "merge-on-write"
    elif scheme not in BOTH:
        if setting == "merge-on-write":
            raise ConfigError(
                f"apply-engine 'merge-on-write' cannot commit to {scheme}://; use 'auto' or 'spark'"
            )
        only = "spark"
    return EngineChoice(setting=setting, only=only)


def scheme_of(warehouse: str) -> str:
    """The URI's scheme in lower case; ``""`` for a plain path."""
    return urlsplit(warehouse).scheme.lower() if "://" in warehouse else ""
