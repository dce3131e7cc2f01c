"""Runs random DDLs on one server and compares every cell with the server's own.

python -m tests.differential --server mysql --seed 7 --minutes 10
python -m tests.differential --server mysql --replay FILE
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path

from tests.differential.run import TABLES, DifferentialRun, Failure, read_statements, timed
from tests.services.database_editions import MARIADB_10_11, MARIADB_11_8, MYSQL_9_7
from tests.services.database_server import DatabaseServer

SERVERS = {"mariadb": MARIADB_10_11, "mariadb-11": MARIADB_11_8, "mysql": MYSQL_9_7}


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.differential", description=__doc__)
    parser.add_argument("--server", choices=SERVERS, default="mariadb")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--tables", type=int, default=TABLES)
    parser.add_argument("--replay", type=Path, help="a file of statements, one a line")
    parser.add_argument("--holds", action="store_true", help="tell of each table that is held")
    given = parser.parse_args()
    logging.disable(logging.WARNING)

    def told(verdict: str, failure: Failure) -> None:
        if verdict != "held" or given.holds:
            print(f"== {verdict}\n{failure}", flush=True)

    begun = time.monotonic()
    with DatabaseServer(SERVERS[given.server]) as server:
        run = DifferentialRun(server, given.seed, tables=given.tables, told=told)
        if given.replay:
            run.replay(*read_statements(given.replay))
        else:
            run.run(timed(given.minutes))
            print(run.findings.coverage.table())
            print(run.findings.coverage.summary(), f"in {time.monotonic() - begun:.0f} s")
    print(f"{len(run.findings.failures)} failures, {len(run.findings.holds)} held")
    return 1 if run.findings.failures else 0


if __name__ == "__main__":
    sys.exit(main())
