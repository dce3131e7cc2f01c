"""A TiDB, as the copy of its tables asks it: which moment, and for how long that can be read.

A TiDB shows a session everything as of one TSO (``tidb_snapshot``): rows, definitions, names. Its
GC deletes versions of rows that nobody needs who reads at or above the *safe point*: the present
less ``tidb_gc_life_time``, moved every ten minutes. A read below it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pymysql

from conf.sources.tidb_uri import TidbSettings
from coordination.errors import ConfigError, TidelakeError
from coordination.model import Ts, tso_time
from streaming.source.binlog.database import ServerSays, connected, refusal
from streaming.source.dump.session import Connection, Session

KEEPS_LONGER: Final = "SET GLOBAL tidb_gc_life_time = '24h', until TiCDC's changefeed runs"
ANSWER_S: Final = 3_600.0  # for a row of a large table
_UNITS_S: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(h|ms|us|µs|ns|m|s)")
_MOMENT: Final = re.compile(r"(\d{8}-\d\d:\d\d:\d\d)(?:\.\d+)? ([+-]\d{4})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gc:
    """``life_time``: as TiDB shows it, such as ``10m0s``. ``safe_point``: up to where it has come;
    None: this account may not know."""

    life_time: str
    safe_point: datetime | None

    @property
    def life_s(self) -> float:
        return duration_s(self.life_time)

    def left_s(self, ts: int, now: float) -> float:
        """For how long the TSO can surely be read from ``now`` (seconds since 1970) on. Others,
        such as a TiCDC that is behind, may hold GC back for longer."""
        return tso_time(ts).timestamp() + self.life_s - now


class Tidb:
    """Every call connects anew, and may block. Raises SourceAway where the server does not answer,
    and ConfigError where it refuses the login."""

    def __init__(self, settings: TidbSettings) -> None:
        self._settings = settings

    def check(self) -> None:
        """Raises ConfigError for a server that is no TiDB, and for a TSO ahead of its clock."""
        (((version,),),) = self._ask("SELECT VERSION()")
        try:
            self._ask("SELECT tidb_version()")
        except ServerSays as error:
            raise ConfigError(
                f"source-uri: {self._settings.address} is no TiDB (its version is {version}): "
                "give a MySQL or MariaDB as mysql://"
            ) from error
        wanted = self._settings.snapshot_ts
        if wanted is not None and wanted > (now := self.now()):
            raise ConfigError(
                f"source-uri: snapshot-ts={wanted} is {tso_time(wanted):%F %T} UTC, and the TiDB "
                f"is at {now} ({tso_time(now):%F %T} UTC): a copy is of the past, or the present"
            )

    def now(self) -> Ts:
        """The present TSO: what is committed later is above."""
        _, ((ts,),), _ = self._ask("BEGIN", "SELECT @@tidb_current_ts", "ROLLBACK")
        if not int(ts):
            raise TidelakeError("the TiDB does not tell its TSO: give one as snapshot-ts")
        return Ts(int(ts))

    def gc(self) -> Gc | None:
        """None: this TiDB does not say so."""
        try:
            (((life_time,),),) = self._ask("SELECT @@GLOBAL.tidb_gc_life_time")
        except ServerSays:
            return None
        told = self._told("tikv_gc_safe_point")
        return Gc(life_time=str(life_time), safe_point=moment_of(told) if told else None)

    def cluster(self) -> str:
        """The ID of the cluster; empty where it does not say so."""
        return self._told("cluster_id")

    def session(self, ts: int, is_stopped: Callable[[], bool] = lambda: False) -> Session:
        """A connection that shows everything as of this TSO. See ``Session``."""
        return Session(self.connect, ts, is_stopped=is_stopped)

    def connect(self) -> Connection:
        return connected(self._settings, read_timeout_s=ANSWER_S)

    def _told(self, name: str) -> str:
        """What TiDB's own table says, where this account may read it."""
        try:
            (rows,) = self._ask(
                f"SELECT VARIABLE_VALUE FROM mysql.tidb WHERE VARIABLE_NAME = '{name}'"
            )
        except ServerSays:
            return ""
        return str(rows[0][0]) if rows else ""

    def _ask(self, *statements: str) -> list[list[tuple[Any, ...]]]:
        """The rows of each statement, on one connection. Raises ServerSays too."""
        found = []
        try:
            with closing(connected(self._settings)) as connection, connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                    found.append(list(cursor.fetchall()))
        except (pymysql.err.MySQLError, OSError) as error:
            raise refusal(error, self._settings) from error
        return found


def nearing(gc: Gc, ts: int, now: float) -> str:
    """A sentence while less than half of the life time is left, or GC has passed; else empty. Pure.
    ``now``: seconds since 1970."""
    left_s = gc.left_s(ts, now)
    if left_s >= gc.life_s / 2:
        return ""
    when = f"in about {left_s:.0f} s" if left_s > 0 else "at any time"
    return (
        f"TiDB's GC may delete {when} what is read at the TSO {ts} (tidb_gc_life_time is "
        f"{gc.life_time}). If the copy takes longer: {KEEPS_LONGER}"
    )


def duration_s(text: str) -> float:
    """A duration as Go writes it: ``10m0s``, ``72h0m0s``."""
    return sum(float(number) * _UNITS_S[unit] for number, unit in _DURATION.findall(text))


def moment_of(text: str) -> datetime | None:
    """``20200816-11:39:28 +0800``, with or without fractions; None for another form."""
    found = _MOMENT.match(text)
    if found is None:
        return None
    return datetime.strptime(" ".join(found.groups()), "%Y%m%d-%H:%M:%S %z").astimezone(UTC)
