"""Which columns of a table its target has, and which are masked: a table's rules, applied to its
definition. Pure.

The definition keeps every column of the source, each with its type there. So DDLs are read by it as
they are, and only `Column.left_out` and `Column.mask` say what the target has of it. Both are told
by a column's name alone, so they are the same for every shape that the table has had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from coordination.errors import ConfigError
from sinks.types.mysql_type import BINARY_TYPES, INTEGER_TYPES, TEXT_TYPES, MySQLType
from sinks.types.table_schema import Column, Mask, TableSchema


def _every(_name: str) -> bool:
    return True


def _none(_name: str) -> Mask:
    return ""


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """``takes`` and ``mask_of``: by a column's name. ``is_all``: every column, and none masked.
    ``salt_check``: a few digits that another salt changes. ``about``: the table, for errors."""

    takes: Callable[[str], bool] = _every
    mask_of: Callable[[str], Mask] = _none
    is_all: bool = True
    salt_check: str = ""
    about: str = ""

    def chosen(self, schema: TableSchema) -> TableSchema:
        """The definition with what the target has of it. Raises ConfigError where rows could not be
        told apart."""
        if self.is_all:
            return schema
        columns = tuple(self.marked(column) for column in schema.columns)
        found = replace(schema, columns=columns, mask_check=self._check(columns))
        told = {column.name: column for column in columns}
        for name in () if schema.key_is_row else schema.key:
            if told[name].left_out:
                raise ConfigError(
                    f"{self.about}sink.column-selectors leave out column {name}, which is of the "
                    "key: select it"
                )
            if told[name].mask == "null":
                raise ConfigError(
                    f"{self.about}sink.column-masks: column {name} is of the key, and cannot be "
                    "null: mask it with sha256"
                )
        if not found.delivered:
            raise ConfigError(f"{self.about}sink.column-selectors leave out every column of it")
        by = schema.partitioning
        hidden = {each.name.lower() for each in columns if each.left_out or each.mask}
        if by is not None and hidden & {name.lower() for name in by.columns}:
            found = replace(found, partitioning=None)  # the rows of partitions are not found by it
        return found

    def _check(self, columns: Iterable[Column]) -> str:
        return self.salt_check if any(each.mask == "sha256" for each in columns) else ""

    def marked(self, column: Column) -> Column:
        if column.generated == "virtual":
            return column
        left_out = not self.takes(column.name)
        mask: Mask = "" if left_out else self.mask_of(column.name)
        return replace(column, left_out=left_out, mask=mask)

    def refuse_by_all_columns(self, schema: TableSchema) -> None:
        """Raises ConfigError for a table whose rows all columns tell apart, if some are missing."""
        lost = [each.name for each in schema.columns if each.left_out or each.mask == "null"]
        if lost:
            raise ConfigError(
                f"{self.about}it has no key, so all columns tell its rows apart ([[sink.tables]] "
                f"key), and column {lost[0]} is left out or null (sink.column-selectors, "
                "sink.column-masks): rows could not be told apart"
            )

    def difference(self, schema: TableSchema) -> str:
        """How a table that was made by other rules differs from these, as words; "": it does
        not."""
        for column in schema.columns:
            now = self.marked(column)
            if now.left_out != column.left_out:
                has = "lacks" if column.left_out else "has"
                wanted = "leave it out" if now.left_out else "select it"
                return f"it {has} column {column.name}, and sink.column-selectors {wanted}"
            if now.mask != column.mask:
                was, wants = (each or "as it is" for each in (column.mask, now.mask))
                return (
                    f"its column {column.name} is {was}, and by sink.column-masks it would be "
                    f"{wants}"
                )
        if schema.mask_check != self._check(schema.columns):
            return "its hashes are of another sink.mask-salt"
        return ""


EVERY_COLUMN: Final = ColumnChoice()


def keeps_text(old: MySQLType, new: MySQLType) -> bool:
    """Whether each value surely has one text in both types, so that its hash stays. A CHAR drops
    the blanks at the end of a text."""
    if new.name == "char" and old.name != "char":
        return False
    for kinds in (INTEGER_TYPES, TEXT_TYPES, [each for each in BINARY_TYPES if each != "binary"]):
        if old.name in kinds and new.name in kinds:
            return True
    told = (old.scale or 0, old.digits) == (new.scale or 0, new.digits)
    return old.name == new.name and old.elements == new.elements and told
