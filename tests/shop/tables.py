"""The shop's tables."""

from __future__ import annotations

from tests.shop.canal_json import Column, Ddl, Table

SCHEMA = "shop"


def _table(name: str, columns: dict[str, str], key: tuple[str, ...]) -> Table:
    """A table with a primary key; types as TiDB's CREATE TABLE has them, in lower case."""
    found = tuple(Column(column, kind) for column, kind in columns.items())
    return Table(schema=SCHEMA, name=name, columns=found, primary_key=key, handle_key=key)


CUSTOMERS = _table(
    "customers",
    {
        "id": "bigint",
        "name": "varchar(64)",
        "email": "varchar(128)",
        "points": "int unsigned",
        "avatar": "varbinary(32)",
        "note": "text",
        "born": "date",
        "joined_at": "datetime(3)",
    },
    ("id",),
)
ORDERS = _table(
    "orders",
    {
        "id": "bigint",
        "customer_id": "bigint",
        "status": "enum('new','paid','refunded')",
        "amount": "decimal(12,2)",
        "note": "varchar(255)",
        "placed_at": "datetime",
    },
    ("id",),
)
PAYMENTS = _table(
    "payments",
    {
        "id": "bigint unsigned",
        "order_id": "bigint",
        "amount": "decimal(12,2)",
        "method": "varchar(16)",
        "fee": "double",
        "paid_at": "timestamp(6)",
    },
    ("id",),
)
ORDER_LINES = _table(
    "order_lines",
    {
        "order_id": "bigint",
        "line": "smallint",
        "sku": "varchar(32)",
        "quantity": "int",
        "discount": "float",
    },
    ("order_id", "line"),
)
ORDER_LINES_ARCHIVE = _table(
    "order_lines_archive",
    {column.name: column.type for column in ORDER_LINES.columns},
    ("order_id", "line"),
)
TABLES = (CUSTOMERS, ORDERS, PAYMENTS, ORDER_LINES, ORDER_LINES_ARCHIVE)

CREATE_SCHEMA = Ddl(SCHEMA, "", "QUERY", f"CREATE DATABASE `{SCHEMA}`")
CREATE_INDEX = Ddl(
    SCHEMA, "orders", "CINDEX", "CREATE INDEX `by_customer` ON `shop`.`orders` (`customer_id`)"
)
CREATE_ARCHIVE = Ddl(
    SCHEMA,
    "order_lines_archive",
    "CREATE",
    "CREATE TABLE `shop`.`order_lines_archive` LIKE `shop`.`order_lines`",
)


def create_table(table: Table) -> Ddl:
    """Its CREATE TABLE, as TiCDC prints one."""
    nonclustered = len(table.primary_key) > 1  # so that a key change is DELETE + INSERT in TiKV too
    columns = [
        f"`{c.name}` {type_sql(c.type)}" + (" NOT NULL" if c.name in table.primary_key else "")
        for c in table.columns
    ]
    key = ", ".join(f"`{name}`" for name in table.primary_key)
    hint = " /*T![clustered_index] NONCLUSTERED */" if nonclustered else ""
    body = ",".join([*columns, f"PRIMARY KEY({key}){hint}"])
    return Ddl(table.schema, table.name, "CREATE", f"CREATE TABLE `shop`.`{table.name}` ({body})")


def type_sql(text: str) -> str:
    """In upper case, but for the elements of an enum."""
    name, quote, rest = text.partition("(")
    upper = name.upper() + quote
    return upper + (rest if name == "enum" else rest.upper())


OPENING = (CREATE_SCHEMA, *map(create_table, (CUSTOMERS, ORDERS, PAYMENTS, ORDER_LINES)))
