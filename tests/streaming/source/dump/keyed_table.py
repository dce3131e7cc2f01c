"""A table ``copied.t`` of 3,000 rows with a key of any kind."""

from __future__ import annotations

from tests.services.database_server import DatabaseServer

ROWS = 3_000
DIGITS = "WITH RECURSIVE d(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM d WHERE n < 2999)"
# Keys of every kind: columns, key, and values made from n (0 to 2999)
KEYS = {
    "int": ("a INT", "a", "n * 7 - 5000"),
    "bigint unsigned": ("a BIGINT UNSIGNED", "a", "18446744073709551615 - n"),
    "smallint": ("a SMALLINT", "a", "n - 1500"),
    "decimal": ("a DECIMAL(30,10)", "a", "(n - 1500) / 7"),
    "float": ("a FLOAT", "a", "(n - 1500) / 7"),
    "double": ("a DOUBLE", "a", "(n - 1500) / 7"),
    "varchar": ("a VARCHAR(20)", "a", "CONCAT(CHAR(65 + n % 26), CHAR(97 + n % 7), n)"),
    "bin": ("a VARCHAR(20) COLLATE utf8mb4_bin", "a", "CONCAT(CHAR(65 + n % 58), '_', n)"),
    "latin1": ("a VARCHAR(20) CHARACTER SET latin1", "a", "CONCAT('é', n % 13, 'ÿ', n)"),
    "gbk": ("a CHAR(20) CHARACTER SET gbk", "a", "CONCAT('中', n % 13, '文', n)"),
    "binary": ("a BINARY(8)", "a", "UNHEX(LPAD(HEX(n * 5003), 8, '0'))"),
    "varbinary": ("a VARBINARY(8)", "a", "UNHEX(HEX(n * 5003))"),
    "date": ("a DATE", "a", "DATE_ADD('2000-01-01', INTERVAL n DAY)"),
    "datetime": ("a DATETIME(6)", "a", "DATE_ADD('2000-01-01', INTERVAL n * 1001 MICROSECOND)"),
    "timestamp": ("a TIMESTAMP(3) NOT NULL", "a", "DATE_ADD('2024-10-27', INTERVAL n MINUTE)"),
    "time": ("a TIME", "a", "SEC_TO_TIME(n * 1000 - 1500000)"),
    "bit": ("a BIT(40)", "a", "n * 1000003"),
    "ints": ("a INT, b SMALLINT", "a, b", "n % 11, n"),
    "enum, text, date": (
        "a ENUM('z','y','x'), b VARCHAR(9), c DATE",
        "a, b, c",
        "1 + n % 3, CONCAT(n % 5), DATE_ADD('2000-01-01', INTERVAL n DAY)",
    ),
    "a skewed text": ("a VARCHAR(9), b INT", "a, b", "IF(n < 2900, 'Same', n), n"),
}


def make(server: DatabaseServer, columns: str, key: str, values: str) -> None:
    names = ", ".join(part.split()[0] for part in columns.split(", "))
    insert = f"INSERT INTO t ({names}) {DIGITS} SELECT {values} FROM d"
    if not server.edition.is_mariadb:
        server.execute("SET GLOBAL cte_max_recursion_depth = 10000")
    with (
        server.connect(database="copied", charset="utf8mb4") as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
        if server.edition.is_mariadb:
            cursor.execute("SET max_recursive_iterations = 10000")
        cursor.execute(f"CREATE TABLE t ({columns}, v INT DEFAULT 7, PRIMARY KEY ({key}))")
        cursor.execute(insert)
        cursor.execute("ANALYZE TABLE t")
