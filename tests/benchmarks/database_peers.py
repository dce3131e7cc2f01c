"""What others have for a database without TiCDC: each makes less than Tidelake does.

    mariadb-dump        a table as SQL texts in a file, on one connection
    mysql-replication   the library's own loop over the binlog: each row as a dict, and no more
    Debezium            its engine alone: each row as JSON, and no more

``python -m tests.benchmarks.database_peers NAME …`` is a contender's process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pyspark

from tests.benchmarks.measure import REPOSITORY, tell
from tests.services.database_editions import MARIADB_10_11

JARS: Final = REPOSITORY / ".jars" / "debezium"
HERE: Final = Path(__file__).parent / "debezium"


def bring_debezium() -> str:
    """Its jars, downloaded by PySpark's Ivy the first time. Why it cannot run here; empty: it can.
    It is a source file, which Java compiles as it starts: that wants a JDK."""
    if shutil.which("javac") is None:
        return "no javac on the PATH"
    if JARS.exists():
        return ""
    (ivy,) = Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")
    part = JARS.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    done = subprocess.run(
        [
            *("java", f"-Divy.default.ivy.user.dir={JARS.parent / 'ivy'}", "-jar", str(ivy)),
            *("-ivy", str(HERE / "ivy.xml"), "-confs", "default", "-types", "jar", "bundle"),
            *("-retrieve", f"{part}/[artifact]-[revision].[ext]"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    shutil.rmtree(JARS.parent / "ivy", ignore_errors=True)
    if done.returncode:
        return f"its jars are not to be had: {done.stdout[-300:]}"
    part.rename(JARS)
    return ""


def debezium(port: str, binlog: str, gtid: str, rows: str, folder: str) -> None:
    """``gtid``: the last one before the first row. `Sync.java` tells when it is done."""
    java = ["java", "-Xmx2g", "-cp", f"{JARS}/*", str(HERE / "Sync.java")]
    os.execvp("java", [*java, port, binlog, gtid, rows, folder])


def library(port: str, binlog: str, rows: str) -> None:
    from pymysqlreplication import BinLogStreamReader
    from pymysqlreplication.row_event import WriteRowsEvent

    stream = BinLogStreamReader(
        connection_settings={"host": "127.0.0.1", "port": int(port), "user": "root"},
        server_id=6002,
        log_file=binlog,
        log_pos=4,
        resume_stream=True,
        only_events=[WriteRowsEvent],
        only_schemas=["shop"],
        is_mariadb=True,
    )
    seen, begun = 0, time.time()
    for event in stream:
        seen += len(event.rows)
        if seen >= int(rows):
            break
    tell("synced", begun=begun, ended=time.time())


def dump(port: str, file: str) -> None:
    begun = time.time()
    with Path(file).open("wb") as output:
        command = MARIADB_10_11.run("usr/bin/mariadb-dump")
        settings = ["--no-defaults", "--single-transaction", "--quick", "-h127.0.0.1", "-uroot"]
        subprocess.run(
            [*command, *settings, f"-P{port}", "shop", "orders"], stdout=output, check=True
        )
    tell("copied", begun=begun, ended=time.time())


def peer(name: str, *arguments: object) -> list[str]:
    own = [sys.executable, "-m", "tests.benchmarks.database_peers"]
    return [*own, name, *map(str, arguments)]


if __name__ == "__main__":
    {"dump": dump, "library": library, "debezium": debezium}[sys.argv[1]](*sys.argv[2:])
