"""Tables without a key, which a copy cannot tell row by row."""

from __future__ import annotations

from conf.settings import DeltaSink
from streaming.changefeed.freshness import Freshness
from streaming.operations.check import Finding, verdict
from streaming.operations.diff.comparison import DiffLimits
from streaming.operations.diff.databases import compare_with_database
from streaming.operations.diff.findings import DiffReport
from streaming.operations.progress_report import read_progress
from tests.acceptance.copied_database import CopiedDatabase

BEFORE = (
    "CREATE TABLE c.beside (id INT PRIMARY KEY AUTO_INCREMENT)",
    "CREATE TABLE c.p (id INT NOT NULL, v INT)",
    "CREATE TABLE c.u (id INT NOT NULL, v INT)",
    "CREATE TABLE c.m (id INT NULL, v INT, UNIQUE KEY(id))",
    "CREATE TABLE c.auto (id INT NOT NULL, v INT)",
    *(f"INSERT INTO c.{table} VALUES (1,1),(2,2),(3,3)" for table in ("p", "u", "m", "auto")),
)
DURING = (
    "ALTER TABLE c.p ADD PRIMARY KEY (id)",
    "INSERT INTO c.p VALUES (4,4)",
    "UPDATE c.p SET v=20 WHERE id=2",
    "ALTER TABLE c.u ADD UNIQUE KEY k (id)",
    "INSERT INTO c.u VALUES (4,4)",
    "ALTER TABLE c.m MODIFY id INT NOT NULL",
    "INSERT INTO c.m VALUES (4,4)",
    "ALTER TABLE c.auto ADD COLUMN k BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY FIRST",
    "INSERT INTO c.auto (id,v) VALUES (10,10)",
)
WITHOUT_KEY = ("c.p", "c.u", "c.m", "c.auto")


def assert_waiting(database: CopiedDatabase, *tables: str) -> None:
    progress = database.progress()
    for table in tables:
        assert progress[table].state in ("warning", "stopped")
        lacks, error = progress[table].lacks, progress[table].error
        assert lacks is not None
        assert error is not None
        assert "rows of before" in lacks
        assert lacks in error
        assert f"table {table} is not replicated" in error
        assert progress[table].dead_letters == 0
        assert database.delta_rows(table) == []
    assert not set(tables) & database.snapshots()


def diff(database: CopiedDatabase) -> DiffReport:
    return compare_with_database(
        database.sink, None, (), database.source, limits=DiffLimits(), told=lambda *_: None
    )


def assert_failed(sink: DeltaSink) -> None:
    found = verdict(read_progress(sink, None, Freshness()), 60.0)
    assert (found.finding, "is not replicated" in found.why) == (Finding.FAILED, True)
