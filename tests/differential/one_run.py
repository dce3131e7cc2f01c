"""A run on a server of its own, as one of several processes."""

from __future__ import annotations

import argparse
import logging

from tests.differential.run import DifferentialRun, Failure, Findings, read_statements, timed
from tests.services.database_editions import MARIADB_10_11, MARIADB_11_8, MYSQL_9_7
from tests.services.database_server import DatabaseServer

SERVERS = {"mariadb": MARIADB_10_11, "mariadb-11": MARIADB_11_8, "mysql": MYSQL_9_7}


def run_one(given: argparse.Namespace, seed: int) -> Findings:
    """On a server of its own; each failure is printed at once."""
    logging.disable(logging.WARNING)

    def told(verdict: str, failure: Failure) -> None:
        if verdict != "held" or given.holds:
            print(f"== {verdict}\n{failure}", flush=True)

    with DatabaseServer(SERVERS[given.server]) as server:
        run = DifferentialRun(server, seed, tables=given.tables, told=told)
        if given.replay:
            run.replay(*read_statements(given.replay))
        else:
            run.run(timed(given.minutes))
        return run.findings
