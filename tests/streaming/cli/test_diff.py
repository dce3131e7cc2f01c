"""What `diff` shows, and how it ends."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from coordination.model import TableName
from streaming.cli.diff import exit_code, view
from streaming.cli.main import main
from streaming.operations.diff.findings import DiffReport, RowFinding, TableFinding

ORDERS = TableName("shop", "orders")
EQUAL = TableFinding(name=ORDERS, version=7, lake_rows=3, database_rows=3)
PROBLEM = TableFinding(name=TableName("shop", "log"), problem="it has no key")
DIFFERS = TableFinding(
    name=ORDERS,
    version=7,
    lake_rows=3,
    database_rows=4,
    differing=3,
    open_rows=1,
    not_asked=5,
    rows=(
        RowFinding(key={"id": 1}, kind="changed", cells={"v": ("a", None), "b": (b"\0", b"")}),
        RowFinding(key={"id": 2}, kind="missing"),
        RowFinding(key={"id": 3}, kind="unfit"),
        RowFinding(key={"id": 4, "k": "x"}, kind="extra", is_settled=False),
    ),
    columns=("column w is in the database alone",),
)


def shown(*tables: TableFinding) -> str:
    out = StringIO()
    Console(file=out, width=200).print(view(DiffReport(tables=tables), 200))
    return out.getvalue()


@pytest.mark.parametrize(
    ("tables", "code"),
    [
        ((EQUAL,), 0),
        ((), 0),
        ((EQUAL, DIFFERS), 1),
        ((EQUAL, PROBLEM), 2),
        ((DIFFERS, PROBLEM), 1),
    ],
)
def test_exit_codes(tables: tuple[TableFinding, ...], code: int) -> None:
    assert exit_code(DiffReport(tables=tables)) == code


def test_a_line_for_each_thing_that_differs() -> None:
    lines = [line.strip() for line in shown(DIFFERS, PROBLEM).splitlines()]
    assert lines[0].split() == [
        *("table", "result", "version", "rows", "in", "the", "database"),
        *("differing", "not", "settled"),
    ]
    assert lines[1].split() == ["shop.orders", "differs", "7", "3", "4", "3", "1"]
    assert lines[2].split() == ["shop.log", "not", "compared", "-", "-", "-", "-", "-"]
    assert lines[3:] == [
        "shop.orders: column w is in the database alone",
        "shop.orders: id = 1: v is 'a', and NULL in the database, b is '0x00', and '0x' in the "
        "database",
        "shop.orders: id = 2: is in the database alone",
        "shop.orders: id = 3: has a value in the database that the table's type cannot hold",
        "shop.orders: id = 4, k = x: is in the table alone (not settled: it may be a change on its "
        "way)",
        "shop.orders: and 5 rows more, 5 of which were not asked again",
        "shop.log: it has no key",
    ]


def test_as_json() -> None:
    found = DiffReport(tables=(DIFFERS,)).to_json()
    assert found["equal"] is False
    (table,) = found["tables"]
    assert (table["result"], table["not_asked_again"]) == ("differs", 5)
    assert table["rows"][0]["cells"]["b"] == {"table": "0x00", "database": "0x"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--source-uri", "mysql://h/"], "source-uri: no user"),
        (["--source-uri", "mysql://u@h/", "--wait", "soon"], "--wait"),
        (
            ["--source-uri", "kafka://h:1/t?protocol=canal-json&enable-tidb-extension=true"],
            "source-uri: tables are compared with a database's: give mysql://user@host:3306/",
        ),
        ([], "source-uri is missing"),
        (["--source-uri", "mysql://u@127.0.0.1:1/?tls=off"], "no changefeed has run in /nowhere"),
    ],
)
def test_what_cannot_be_compared_ends_with_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["diff", "--sink-uri", "delta:///nowhere", *arguments])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err
