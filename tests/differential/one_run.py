"""A run on a server of its own, as one of several processes."""

from __future__ import annotations

import argparse
import logging

from tests.differential.oracle import Failure, Findings, Oracle
from tests.differential.replay import few_of, read_statements, replay, replay_together
from tests.differential.run import DifferentialRun, timed
from tests.services.database_editions import MARIADB_10_11, MARIADB_11_8, MYSQL_9_7
from tests.services.database_server import DatabaseServer

SERVERS = {"mariadb": MARIADB_10_11, "mariadb-11": MARIADB_11_8, "mysql": MYSQL_9_7}
MOST_SHRUNK = 5  # failures: each takes some ten lives


def run_one(given: argparse.Namespace, seed: int) -> Findings:
    """On a server of its own; each failure is printed at once."""
    logging.disable(logging.WARNING)

    def told(verdict: str, failure: Failure) -> None:
        if verdict != "held" or given.holds:
            print(f"== {verdict}\n{failure}", flush=True)

    with DatabaseServer(SERVERS[given.server]) as server:
        oracle = Oracle(server, told=told)
        match given.replay:
            case None:
                DifferentialRun(oracle, seed, tables=given.tables).run(timed(given.minutes))
            case [file]:
                replay(oracle, read_statements(file))
            case files:
                replay_together(oracle, {each.stem: read_statements(each) for each in files})
                return oracle.findings
        for failure in oracle.findings.failures[: given.most_shrunk]:
            lines = ";\n".join(few_of(oracle, failure))
            print(f"== {failure.table} fails with these alone:\n{lines};", flush=True)
        return oracle.findings
