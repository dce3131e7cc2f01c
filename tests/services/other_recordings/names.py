"""Other names for the database, tables and columns of the recordings, also in statements."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

SCHEMA = "shop"
# Tables that are one table under several names, or are made LIKE one: they share their columns.
SAME = {"coupon_v2": "coupon", "tmp_two": "tmp_one", "tmp_one_old": "tmp_one"}
TABLES = (
    *("orders", "alltypes", "stock", "coupon", "coupon_v2", "audit_log", "events"),
    *("tmp_one", "tmp_two", "tmp_one_old"),
)
_ORDERS = "id name amount created_at order note remark status maybe score"
_ALL_TYPES = """id c_tinyint c_utinyint c_bool c_smallint c_usmallint c_mediumint c_umediumint c_int
c_uint c_zero c_bigint c_ubigint c_bit1 c_bit10 c_bit64 c_float c_double c_ufloat c_udouble c_dec
c_dec2 c_udec c_char c_varchar c_tinytext c_text c_mediumtext c_longtext c_gbk c_gbktext c_latin1
c_ascii c_binary c_varbinary c_tinyblob c_blob c_mediumblob c_longblob c_date c_time c_time6
c_datetime c_datetime6 c_timestamp c_timestamp6 c_year c_enum c_set c_json c_nn_int c_nn_vc c_nn_ts
c_gen_v c_gen_s select 列名 c_vec"""
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "orders": tuple(_ORDERS.split()),
    "stock": ("region", "seq", "qty", "junk"),
    "coupon": ("code", "sub", "v", "w"),
    "audit_log": ("a", "b", "c"),
    "events": ("id", "grp", "payload", "d"),
    "tmp_one": ("k", "v", "extra"),
    "alltypes": tuple(_ALL_TYPES.split()),
}
_TOKENS = re.compile(
    r"`(?:[^`]|``)*`|'(?:[^'\\]|''|\\.)*'|/\*.*?\*/|[A-Za-z_][A-Za-z0-9_]*|.", re.DOTALL
)


def place(table: str, column: str) -> tuple[str, str]:
    """A column by the first of its names."""
    table = SAME.get(table, table)
    return table, "note" if (table, column) == ("orders", "remark") else column


@dataclass(frozen=True)
class Names:
    """What is not in ``tables`` and ``columns`` keeps its name."""

    schema: str = SCHEMA
    tables: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)  # of indexes and partitions

    def database(self, name: str) -> str:
        return self.schema if name == SCHEMA else name

    def table(self, name: str) -> str:
        return self.tables.get(name, name)

    def column(self, table: str, name: str) -> str:
        of = self.columns.get(SAME.get(table, table), {})
        return of.get(name, name)

    def index(self, name: str) -> str:
        return self.others.get(name, name)

    def sql(self, text: str, table: str) -> str:
        """A statement about ``table`` (its name behind a RENAME, say). Words without quotes that
        are names of columns are names."""
        made = list[str]()
        known = COLUMNS.get(SAME.get(table, table), ())
        tokens = _TOKENS.findall(text)
        for before, token, behind in zip(["", *tokens], tokens, [*tokens[1:], ""], strict=False):
            if token[:1] != "`" and token not in known:
                made.append(token)
                continue
            name = token[1:-1].replace("``", "`") if token[:1] == "`" else token
            if name == SCHEMA and (behind == "." or not table):
                name = self.schema
            elif before == ".":
                name = self.table(name)
            else:
                name = self.column(table, name) if name in known else self.index(name)
            made.append("`" + name.replace("`", "``") + "`")
        return "".join(made)
