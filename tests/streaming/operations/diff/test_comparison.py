"""A real MariaDB beside a table of the lake: what differs, what is only on its way, and what cannot
be compared."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from coordination.errors import ConfigError
from sinks.target.write_mode import ROW_DELETED, WriteMode
from streaming.operations.diff import passing
from streaming.operations.diff.table_diff import MOST_CHUNKS
from tests.services.database_server import DatabaseServer
from tests.services.held_commits import held_commit
from tests.streaming.operations.diff.rig import Rig

pytestmark = pytest.mark.mariadb
ORDERS = "CREATE TABLE orders (id BIGINT PRIMARY KEY, v VARCHAR(20), n INT)"


@pytest.fixture
def orders(rig: Rig) -> Rig:
    rig.sql(ORDERS, "INSERT INTO orders SELECT seq, CONCAT('v', seq), seq FROM seq_1_to_2500")
    rig.make("orders")
    rig.copy("orders")
    return rig


def test_equal_tables(orders: Rig) -> None:
    found = orders.one("orders")
    assert (found.result, found.lake_rows, found.database_rows) == ("equal", 2500, 2500)
    assert orders.diff().is_equal


def test_rows_that_differ_are_named_with_their_cells(orders: Rig) -> None:
    orders.put("orders", {"id": 7, "v": "other", "n": 7}, {"id": 9001, "v": "x"})
    orders.delete("orders", {"id": 8}, {"id": 2500})
    orders.passed("orders", orders.log.ends(["binlog"]))
    found = orders.one("orders", chunk_rows=100)
    rows = {(row.kind, row.key["id"]): row for row in found.rows}
    assert rows.keys() == {
        ("changed", 7),
        ("extra", 9001),
        ("missing", 8),
        ("missing", 2500),
    }
    assert rows["changed", 7].cells == {"v": ("other", "v7")}
    assert all(row.is_settled for row in found.rows)
    assert (found.result, found.differing, found.open_rows) == ("differs", 4, 0)


def test_changes_that_come_to_the_table_in_time_are_no_difference(
    orders: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.sql("UPDATE orders SET v = 'new' WHERE id <= 50", "DELETE FROM orders WHERE id = 60")
    orders.sql("INSERT INTO orders VALUES (9000, 'more', 1)")
    follower = _Follower(orders)
    monkeypatch.setattr(passing, "LOOK_EVERY_S", 0.01)
    with follower:
        found = orders.one("orders", wait_s=30)
    assert found.result == "equal"


def test_a_table_that_is_behind_is_not_settled(orders: Rig) -> None:
    orders.sql("UPDATE orders SET v = 'new' WHERE id = 5")
    found = orders.one("orders", wait_s=0.2)
    assert (found.result, found.differing, found.open_rows) == ("not settled", 0, 1)
    (row,) = found.rows
    assert (row.kind, row.is_settled, row.cells) == ("changed", False, {"v": ("v5", "new")})


def test_positions_of_another_server_settle_nothing(orders: Rig) -> None:
    orders.put("orders", {"id": 7, "v": "other", "n": 7})
    ends = orders.log.ends(["binlog"])
    orders.passed("orders", ends, source_identities={"binlog": "its replica"})
    found = orders.one("orders")
    assert (found.differing, found.open_rows) == (0, 1)


def test_a_busy_table_that_follows_is_equal(orders: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer changes rows to and fro while the table follows; one row is wrong all the time."""
    monkeypatch.setattr(passing, "LOOK_EVERY_S", 0.01)
    with _Writer(orders), _Follower(orders, but={"id": 6, "v": "wrong", "n": 0}):
        found = orders.one("orders", wait_s=30)
    settled = [row for row in found.rows if row.is_settled]
    assert [row.key for row in settled] == [{"id": 6}]
    assert found.differing == 1


def test_a_table_may_be_ahead_of_the_database(tmp_path: Path) -> None:
    """A transaction that waits for a replica is in the binlog, and so in the table, and no other
    session is shown it."""
    with DatabaseServer() as server, server.database("diff_shop") as schema:
        rig = Rig(server, schema, tmp_path / "lake")
        rig.sql(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1)")
        rig.make("orders")
        rig.copy("orders")
        with held_commit(server, f"UPDATE {schema}.orders SET v = 'new' WHERE id = 1") as go_on:
            rig.put("orders", {"id": 1, "v": "new", "n": 1})
            rig.passed("orders", rig.log.ends(["binlog"]))
            found = rig.one("orders", wait_s=0.3)
            assert (found.result, found.differing, found.open_rows) == ("not settled", 0, 1)
            go_on.set()
        assert rig.one("orders").result == "equal"
        rig.close()


def test_a_value_that_the_table_cannot_hold(rig: Rig) -> None:
    rig.sql("CREATE TABLE t (id INT PRIMARY KEY, v BIGINT)", "INSERT INTO t VALUES (1, 5000000000)")
    rig.make("t", v="int")
    rig.put("t", {"id": 1, "v": None})
    rig.passed("t", rig.log.ends(["binlog"]))
    found = rig.one("t")
    (row,) = found.rows
    assert (row.kind, found.differing) == ("unfit", 1)
    assert found.columns == ("column v is bigint(20) in the database, and int (int) in the table",)


def test_columns_that_one_side_lacks(orders: Rig) -> None:
    orders.sql("ALTER TABLE orders ADD COLUMN more INT, DROP COLUMN n")
    found = orders.one("orders", wait_s=0.1)
    assert found.columns == (
        "column n is in the table alone",
        "column more is in the database alone",
    )
    assert (found.result, found.rows) == ("differs", ())


def test_what_cannot_be_compared_is_a_sentence(rig: Rig) -> None:
    rig.sql("CREATE TABLE log (id INT PRIMARY KEY)", "CREATE TABLE gone (id INT PRIMARY KEY)")
    rig.sql("CREATE TABLE bare (id INT)")
    rig.make("log", form=WriteMode(mode="append"))
    rig.make("gone")
    rig.make("bare")
    rig.sql("DROP TABLE gone")
    found = {each.name.table: each.problem or "" for each in rig.diff().tables}
    assert found["gone"] == "the database has no table diff_shop.gone"
    assert "it has the events" in found["log"]
    assert found["bare"] == "it has no key, by which rows could be told apart"
    with pytest.raises(ConfigError, match=r"has no table diff_shop\.orders, but diff_shop\.bare"):
        rig.diff("orders")


def test_a_server_that_is_restarted_meanwhile_is_asked_again(tmp_path: Path) -> None:
    with DatabaseServer() as server, server.database("diff_shop") as schema:
        rig = Rig(server, schema, tmp_path / "lake")
        rig.sql(ORDERS, "INSERT INTO orders SELECT seq, 'v', seq FROM seq_1_to_3000")
        rig.make("orders")
        rig.copy("orders")
        rig.sql("UPDATE orders SET v = 'new' WHERE id = 2900")
        rig.follow("orders")
        is_under_way = threading.Event()
        rig.told = lambda done, _total: is_under_way.set() if done > 500 else None
        with ThreadPoolExecutor(1) as beside:
            comparison = beside.submit(rig.one, "orders", chunk_rows=100, rows_per_s=3000)
            assert is_under_way.wait(30)
            server.kill()
            server.start()
            found = comparison.result()
        assert (found.result, found.database_rows) == ("equal", 3000)
        rig.close()


def test_a_table_that_lacks_most_rows_has_few_chunks_read_again(orders: Rig) -> None:
    orders.delete("orders", *({"id": number} for number in range(1, 2501)))
    orders.passed("orders", orders.log.ends(["binlog"]))
    found = orders.one("orders", chunk_rows=20)
    few = MOST_CHUNKS * 20
    assert (found.differing, found.not_asked, len(found.rows)) == (few, 2500 - few, 20)
    assert {row.kind for row in found.rows} == {"missing"}


def test_a_table_that_keeps_deleted_rows(rig: Rig) -> None:
    rig.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (3, 3)")
    rig.make("t", form=WriteMode(soft_delete=True))
    rig.put("t", {"id": 1, "v": 1}, {"id": 2, "v": 2, ROW_DELETED: True}, {"id": 3, "v": 3})
    assert rig.one("t", wait_s=0.1).result == "equal"
    rig.put("t", {"id": 3, "v": 3, ROW_DELETED: True})
    rig.passed("t", rig.log.ends(["binlog"]))
    found = rig.one("t")
    assert [(row.kind, row.key["id"]) for row in found.rows] == [("missing", 3)]


def test_a_table_that_cannot_be_read_is_a_sentence(rig: Rig) -> None:
    rig.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING")
    rig.make("t")
    assert "cannot be read whole: it is system-versioned" in str(rig.one("t").problem)


def test_the_pace_is_kept(orders: Rig) -> None:
    report = orders.one("orders", chunk_rows=500, rows_per_s=5000)
    assert report.result == "equal"


class _Thread:
    """Runs ``step`` again and again beside a test."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()
        assert self._error is None, self._error

    def _run(self) -> None:
        try:
            while not self._over.wait(0.01):
                self.step()
        except BaseException as error:  # noqa: BLE001  # the test's thread raises it
            self._error = error

    def step(self) -> None:
        raise NotImplementedError


class _Writer(_Thread):
    """Changes rows to and fro."""

    count = 0

    def step(self) -> None:
        self.count += 1
        self._rig.sql(
            f"UPDATE orders SET v = 'v{self.count % 2}' WHERE id % 50 = {self.count % 5}",
            f"REPLACE INTO orders VALUES ({10000 + self.count % 3}, 'x', {self.count})",
            f"DELETE FROM orders WHERE id = {10000 + (self.count + 1) % 3}",
        )


class _Follower(_Thread):
    """Brings the table to the database's rows: all of them, also those that are gone."""

    def __init__(self, rig: Rig, but: dict[str, Any] | None = None) -> None:
        super().__init__(rig)
        self._but = but

    def step(self) -> None:
        self._rig.follow("orders", self._but)
