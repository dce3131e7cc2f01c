"""Real servers that replicate: one from the other, by GTID."""

from __future__ import annotations

import time
from typing import Any, Final

from tests.services.database_editions import Edition
from tests.services.database_server import DatabaseError, DatabaseServer

PATIENCE_S: Final = 60.0


def member(edition: Edition, number: int, **settings: str | None) -> DatabaseServer:
    """A server that may be primary or replica; not started. ``settings``: with _ for -."""
    logs = "log-slave-updates" if edition.is_mariadb else "log-replica-updates"
    own = {"gtid-strict-mode": "ON"} if edition.is_mariadb else {}
    given = {name.replace("_", "-"): value for name, value in settings.items()}
    unknown = "log-replica-updates" if edition.is_mariadb else "log-slave-updates"
    given.pop(unknown, None)
    return DatabaseServer(edition, {"server-id": str(number), logs: "ON", **own, **given})


def replicate(replica: DatabaseServer, primary: DatabaseServer) -> None:
    """The replica follows the primary from now on; it may have been a primary before."""
    where = f"HOST='{primary.host}', {{0}}_PORT={primary.port}, {{0}}_USER='root'"
    if replica.edition.is_mariadb:
        replica.execute(
            "STOP SLAVE",
            "SET GLOBAL gtid_slave_pos = @@global.gtid_current_pos",
            f"CHANGE MASTER TO MASTER_{where.format('MASTER')}, MASTER_USE_GTID=slave_pos, "
            "MASTER_SSL=0, MASTER_CONNECT_RETRY=1",
            "START SLAVE",
        )
    else:
        replica.execute(
            "STOP REPLICA",
            f"CHANGE REPLICATION SOURCE TO SOURCE_{where.format('SOURCE')}, "
            "SOURCE_AUTO_POSITION=1, SOURCE_SSL=0, GET_SOURCE_PUBLIC_KEY=1, "
            "SOURCE_CONNECT_RETRY=1",
            "START REPLICA",
        )


def promote(replica: DatabaseServer) -> None:
    """Apply what it has received, and follow nobody any more."""
    if replica.edition.is_mariadb:
        _await_applied(replica)
        replica.execute("STOP SLAVE", "RESET SLAVE ALL")
    else:
        replica.execute("STOP REPLICA IO_THREAD")
        _await_applied(replica)
        replica.execute("STOP REPLICA", "RESET REPLICA ALL")


def _await_applied(replica: DatabaseServer) -> None:
    """Until nothing that was received is left."""
    is_mariadb = replica.edition.is_mariadb
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        told = status(replica)
        if is_mariadb:
            read = told["Master_Log_File"], told["Read_Master_Log_Pos"]
            done = told["Relay_Master_Log_File"], told["Exec_Master_Log_Pos"]
            if read == done:
                return
        else:
            state = told["Replica_SQL_Running_State"]
            if "has read all relay log" in state:
                return
        time.sleep(0.02)
    raise DatabaseError(f"the replica does not apply what it has: {status(replica)}")


def status(replica: DatabaseServer) -> dict[str, Any]:
    word = "SLAVE" if replica.edition.is_mariadb else "REPLICA"
    with replica.connect() as link, link.cursor() as cursor:
        cursor.execute(f"SHOW {word} STATUS")
        row = cursor.fetchone()
        assert cursor.description is not None
        return dict(zip([each[0] for each in cursor.description], row or (), strict=False))


def executed(server: DatabaseServer) -> str:
    """The GTIDs of what is in its binlog."""
    name = "gtid_binlog_pos" if server.edition.is_mariadb else "gtid_executed"
    ((text,),) = server.query(f"SELECT @@GLOBAL.{name}")
    return str(text).replace("\n", "")


def await_caught_up(replica: DatabaseServer, primary: DatabaseServer) -> None:
    """Until the replica has logged all that the primary has now."""
    wanted, until_s = executed(primary), time.monotonic() + PATIENCE_S
    while executed(replica) != wanted:
        if time.monotonic() > until_s:
            raise DatabaseError(
                f"{executed(replica)} is there of {wanted}: {status(replica)}\n{replica.log_tail()}"
            )
        time.sleep(0.02)
