"""Which engine commits a table's changes: a decision without I/O (design 5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from conf.settings import BatchSettings
from coordination.errors import ConfigError, TidelakeError

EngineName = Literal["spark", "delta-rs"]
EngineSetting = Literal["auto", "spark", "delta-rs"]

LOCAL = frozenset({"", "file"})
CONDITIONAL_PUT_ONLY = frozenset({"s3", "s3a"})  # no put-if-absent in Spark's default log store
BOTH = LOCAL | {"abfs", "abfss", "az", "gs"}

# Seen to work with deltalake 1.6.6; refused by it: typeWidening, rowTracking, domainMetadata,
# inCommitTimestamp, and merges into variant columns. Its own set_table_properties, which seals a
# table, adds variantType to any table; we make no such columns.
DELTA_RS_FEATURES = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "columnMapping",
        "deletionVectors",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
        "variantType",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """The rule of one sink; build it with ``engine_choice``, which refuses what cannot be safe."""

    setting: EngineSetting
    only: EngineName | None  # the scheme leaves no choice
    max_rows: int
    max_table_bytes: int

    def choose(
        self, table: str, *, features: frozenset[str], rows: Callable[[], int], table_bytes: int
    ) -> EngineName:
        """The engine of one write of ``rows`` changes, asked for only where they decide (counting
        them may be a Spark job); raises where none may write the table."""
        wanted = self.only or (None if self.setting == "auto" else self.setting)
        foreign = features - DELTA_RS_FEATURES
        if wanted == "delta-rs" and foreign:
            raise TidelakeError(
                f"table {table}: apply engine delta-rs cannot write the table features"
                f" {', '.join(sorted(foreign))}; drop them, or use apply-engine = 'spark'"
            )
        if wanted is not None:
            return wanted
        is_small = not foreign and table_bytes <= self.max_table_bytes and rows() <= self.max_rows
        return "delta-rs" if is_small else "spark"


def engine_choice(
    setting: EngineSetting, warehouse: str, limits: BatchSettings, *, allow_unsafe_commits: bool
) -> EngineChoice:
    """The rule for this sink, or a ConfigError: two commit protocols on one log are never safe."""
    return EngineChoice(
        setting=setting,
        only=_only_engine(setting, scheme_of(warehouse), allow_unsafe_commits),
        max_rows=limits.delta_rs_max_rows,
        max_table_bytes=limits.delta_rs_max_table_bytes,
    )


def scheme_of(warehouse: str) -> str:
    """``""`` for a plain path."""
    return urlsplit(warehouse).scheme.lower() if "://" in warehouse else ""


def _only_engine(setting: EngineSetting, scheme: str, unsafe: bool) -> EngineName | None:
    if scheme in BOTH:
        return None
    if scheme not in CONDITIONAL_PUT_ONLY:
        if setting == "delta-rs":
            raise ConfigError(
                f"apply-engine 'delta-rs' cannot commit to {scheme}://; use 'auto' or 'spark'"
            )
        return "spark"
    if setting == "spark" and not unsafe:
        raise ConfigError(
            f"apply-engine 'spark' can lose commits on {scheme}://, which has no put-if-absent for"
            " Spark; use 'auto' or 'delta-rs', or set allow-unsafe-commits = true"
        )
    return "spark" if setting == "spark" else "delta-rs"
