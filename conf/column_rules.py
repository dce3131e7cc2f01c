"""``[[sink.column-selectors]]`` and ``[[sink.column-masks]]``: which columns a target has, and
which of them are masked before anything is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from conf.problems import require
from conf.secret_references import parse_reference
from conf.setting import setting

MaskKind = Literal["null", "sha256"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSelector:
    """The first one whose matcher takes a table counts, as in TiCDC."""

    matcher: tuple[str, ...] = setting(
        "matcher", (), "the tables, by the names of their targets, as in `[filter] rules`"
    )
    columns: tuple[str, ...] = setting(
        "columns",
        (),
        "patterns of the columns that the target has, `!` before one that it has not; the last "
        "that matches decides (docs/configuration.md#columns)",
    )

    def __post_init__(self) -> None:
        require(bool(self.matcher), "sink.column-selectors: one of them has no matcher")
        require(bool(self.columns), "sink.column-selectors: one of them has no columns")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMask:
    """The first one that takes a table and a column of it counts."""

    matcher: tuple[str, ...] = setting(
        "matcher", (), "the tables, by the names of their targets, as in `[filter] rules`"
    )
    columns: tuple[str, ...] = setting(
        "columns", (), "patterns of the columns that are masked, as those of a column selector"
    )
    mask: MaskKind = setting(
        "mask",
        "null",
        "`null`, or `sha256`: the hash of the value's text, in hexadecimal digits",
    )

    def __post_init__(self) -> None:
        require(bool(self.matcher), "sink.column-masks: one of them has no matcher")
        require(bool(self.columns), "sink.column-masks: one of them has no columns")


def check_salt(salt: str | None) -> None:
    """Raises SettingError for one in clear text: it would lie in etcd, and in the warehouse."""
    require(
        salt is None or parse_reference("sink.mask-salt", salt) is not None,
        "sink.mask-salt: give a reference to it, ${env:NAME} or ${file:/path}",
    )


def columns_of_sink(sink: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of ``DeltaSink`` about columns, of the checked ``[sink]`` of a file. Raises
    SettingError."""
    check_salt(sink.get("mask-salt"))
    return {
        "column_selectors": told_selectors(sink.get("column-selectors", ())),
        "column_masks": told_masks(sink.get("column-masks", ())),
        "mask_salt": sink.get("mask-salt"),
    }


def told_selectors(rows: Iterable[Mapping[str, Any]]) -> tuple[ColumnSelector, ...]:
    """The rules of their fields (``dataclasses.asdict``), read back from JSON."""
    return tuple(ColumnSelector(**_told(row)) for row in rows)


def told_masks(rows: Iterable[Mapping[str, Any]]) -> tuple[ColumnMask, ...]:
    return tuple(ColumnMask(**_told(row)) for row in rows)


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(of) if isinstance(of, list) else of for name, of in row.items()}
