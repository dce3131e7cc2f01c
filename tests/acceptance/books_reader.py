"""What a warehouse shows of the books, in its snapshots and now: beside what it must show."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tests.acceptance.books import Books
from tests.acceptance.books_journal import Moment
from tests.acceptance.changing_table import KEY, Row
from tests.services.delta_rows import first_difference


class BooksReader:
    """Compares snapshots of the warehouse with what was. What two snapshots share is read once."""

    def __init__(self, books: Books, warehouse: str | Path) -> None:
        self._books, self._warehouse = books, warehouse
        self._right: dict[tuple[str, int, int], list[Row]] = {}  # version and model -> rows

    def check(self, cuts: Iterable[Mapping[str, Any]]) -> int:
        """Rows of ``_tidelake/snapshots``: invariants, shape and every cell; how many they are."""
        count = 0
        for count, cut in enumerate(cuts, 1):  # noqa: B007
            self._check(cut["primary_ts"], cut["tables"])
        return count

    def check_now(self, ts: int) -> None:
        """The newest versions are as of this ts."""
        moment = self._books.at(ts)
        self._check(ts, {name: self._newest(name) for name in moment.tables})

    def check_ddls(self, ts: int) -> None:
        """Each that changes a target, up to this ts, is one commit of it. What removes rows is one
        of each incarnation that has come to it."""
        found: Counter[tuple[str, int, int]] = Counter()  # a name that is left and taken: two
        writers: Counter[tuple[str, int, int, str]] = Counter()
        for path in Path(self._warehouse).glob("[!_]*/*/_delta_log/*.json"):
            actions = [json.loads(line) for line in path.read_text().splitlines()]
            info = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
            ddl = json.loads(info.get("userMetadata") or "{}")
            if ddl.keys() >= {"commit_ts", "query"}:
                at = str(path.parent), ddl["commit_ts"], ddl["order"]
                apps = [each["txn"]["appId"] for each in actions if "txn" in each]
                writers[*at, "" if info["operation"] == "ALTER TABLE" else str(apps)] += 1
                found[at] += 1
        where = f"seed {self._books.seed}"
        twice = [each for each, count in writers.items() if count > 1]
        assert not twice, f"{where}: {twice}"
        wanted = {at for at in self._books.ddls if at <= ts}
        missing = wanted - {at for _, at, _ in found}
        assert not missing, f"{where}: {[self._books.ddls[at] for at in sorted(missing)]}"

    def _newest(self, name: str) -> int:
        return int(DeltaTable(self._uri(name)).version())

    def _uri(self, name: str) -> str:
        return f"{self._warehouse}/{name.replace('.', '/')}"

    def _check(self, ts: int, versions: Mapping[str, int]) -> None:
        moment = self._books.at(ts)
        where = f"seed {self._books.seed}, snapshot at {ts} {versions}\n{self._history(ts)}"
        assert versions.keys() == moment.tables.keys(), f"{sorted(moment.tables)}: {where}"
        found: dict[str, list[Row]] = {}
        lines = []
        for name, then in moment.tables.items():
            known = (name, versions[name], id(then))
            if known not in self._right:
                columns, rows = self._read(name, versions[name])
                assert columns == then.columns, f"{name}: {columns}, not {then.columns}: {where}"
                line = first_difference(then.rows, rows, then.key)
                lines += [f"{name}: {line}"] if line else []
                self._right[known] = rows
            found[name] = self._right[known]
        lines += broken(moment, found)  # by what was found alone
        assert not lines, "\n".join([*lines, where])

    def _read(self, name: str, version: int) -> tuple[tuple[str, ...], list[Row]]:
        table = DeltaTable(self._uri(name), version=version)
        found = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())
        return tuple(found.column_names), found.to_pylist()

    def _history(self, ts: int) -> str:
        """The DDLs around a moment."""
        near = [at for at in self._books.ddls if at <= ts][-4:]
        near += [at for at in self._books.ddls if at > ts][:1]
        return "\n".join(f"  {at} {self._books.ddls[at]}" for at in near)


def broken(moment: Moment, found: Mapping[str, list[Row]]) -> list[str]:
    """The invariants that do not hold in these rows."""
    found = {
        name: [row for row in found[name] if moment.tables[name].is_live(row)] for name in found
    }
    lines = []
    total: Any = 0
    counts: dict[int, int] = {}
    items: Counter[int] = Counter()
    for name, then in moment.tables.items():
        match then.part:
            case "account":
                total += sum(row[then.roles["balance"]] for row in found[name])
            case "order":
                counts = {row[KEY]: row[then.roles["count"]] for row in found[name]}
            case "item":
                orders = (row[then.roles["order"]] for row in found[name])
                items = Counter(order for order in orders if order is not None)
    if total:
        lines.append(f"the balances add up to {total}")
    if lost := items.keys() - counts.keys():
        lines.append(f"items of orders that are not there: {sorted(lost)}")
    if wrong := {id for id, count in counts.items() if count != items[id]}:
        lines.append(f"orders with another number of items: {sorted(wrong)}")
    return lines
