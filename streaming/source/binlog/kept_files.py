"""Binlog files that the server has deleted, or will delete.

A server deletes a file when it is older than ``binlog_expire_logs_seconds`` (or
``expire_logs_days``). A file's age counts from when the server went on to the next one, so it never
deletes the one that it writes. ``max_binlog_total_size`` of MariaDB is not looked at.

The file with an XA PREPARE is needed until its transaction ends, wherever reading stands.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from coordination.errors import TidelakeError
from coordination.model import TSO_LOGICAL_BITS, tso_time
from streaming.protocols.clocks import AHEAD_MS
from streaming.source.binlog.database import Database
from streaming.source.binlog.format.control.xa import Xid
from streaming.source.binlog.log_tail import event_bytes
from streaming.source.binlog.position import FIRST_OFFSET, BinlogPosition
from streaming.source.contract import Kept, SourceAway, SourceLost

WARN_BELOW: Final = 0.5  # a part of the time
_SECONDS: Final = "binlog_expire_logs_seconds"
_DAYS: Final = "expire_logs_days"
_PURGES: Final = "binlog_expire_logs_auto_purge"  # MySQL's
_DAY_S: Final = 86_400
PREPARED_LONG_S: Final = 600.0
_NAMED: Final = 3  # transactions in a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """After so long the server deletes a file."""

    variable: str
    after_s: float

    @staticmethod
    def of(variables: dict[str, str]) -> Expiry | None:
        """None: never."""
        if variables.get(_PURGES, "ON").upper() == "OFF":
            return None
        for variable, unit_s in ((_SECONDS, 1), (_DAYS, _DAY_S)):
            if after_s := float(variables.get(variable, 0)) * unit_s:
                return Expiry(variable=variable, after_s=after_s)
        return None

    def kept(self, name: str, age_s: float) -> Kept:
        """``name``: of the needed file; ``age_s``: since the server has gone on to the next."""
        left_s = max(0.0, self.after_s - age_s)
        if left_s > self.after_s * WARN_BELOW:
            return Kept(left_s=left_s, concern=None)
        return Kept(
            left_s=left_s,
            concern=f"the binlog file {name}: more than half of {self.variable} "
            f"({self.after_s / 3600:.3g} h) has passed since the server went on to the next file, "
            "and changes in it are still needed. A file that the server deletes before it is "
            f"applied is lost to this changefeed: make {self.variable} larger, or reading faster",
        )


def kept(database: Database, at: BinlogPosition) -> Kept | None:
    """How long the server keeps what lies at this position. Blocks; raises SourceAway."""
    expiry = Expiry.of(database.variables(_SECONDS, _DAYS, _PURGES))
    if expiry is None or at.number >= database.end().number:
        return None
    ((now_s,),) = database.ask("SELECT UNIX_TIMESTAMP()")
    next_s = begun_s(database, at.number + 1)
    name = database.name_of(int(at)).partition(" ")[0]
    return expiry.kept(name, float(now_s) - next_s)


@dataclass(slots=True)
class PreparedWatch:
    """XA transactions that nobody ends. A server does not say since when they are prepared:
    ``since_s`` is when each was seen first."""

    since_s: dict[Xid, float] = field(default_factory=dict)

    def concern(self, database: Database, now_s: float) -> str | None:
        """A sentence about those that have been prepared for long, as far as this object has seen.
        Blocks; raises SourceAway. Without the right to ask (MySQL's XA_RECOVER_ADMIN) there is
        none."""
        try:
            is_mariadb = database.facts().is_mariadb
            rows = database.ask("XA RECOVER" if is_mariadb else "XA RECOVER CONVERT XID")
        except SourceAway:
            raise
        except TidelakeError:
            return None
        found = [_xid(*row) for row in rows]
        self.since_s = {xid: self.since_s.get(xid, now_s) for xid in found}
        long = [xid for xid, at_s in self.since_s.items() if now_s - at_s >= PREPARED_LONG_S]
        if not long:
            return None
        names = "; ".join(map(str, sorted(long, key=str)[:_NAMED]))
        more = f"; and {len(long) - _NAMED} more" if len(long) > _NAMED else ""
        return (
            f"XA transactions are prepared, and have not ended for {PREPARED_LONG_S / 60:g} "
            f"minutes: {names}{more}. Until then their rows are in no target, and the server must "
            "keep its binlog from their XA PREPARE on. If no application will end one, let XA "
            "COMMIT or XA ROLLBACK do it, with this name"
        )


def _xid(format_id: int, gtrid: int, bqual: int, data: bytes | str) -> Xid:
    raw = data if isinstance(data, bytes) else bytes.fromhex(data.removeprefix("0x"))
    return Xid(int(format_id), raw[:gtrid], raw[gtrid : gtrid + bqual])


def refuse_a_hole(database: Database, first: BinlogPosition, checkpoint_ts: int) -> None:
    """Raise SourceLost unless all changes above the checkpoint lie at or behind ``first``, which is
    the first position that the server has. Blocks; raises SourceAway."""
    if first.number <= 1:
        return
    # A transaction in an earlier file may have a time that is as far ahead as one is believed.
    safe_ts = int(begun_s(database, first.number) * 1e3 + AHEAD_MS) << TSO_LOGICAL_BITS
    if checkpoint_ts < safe_ts:
        raise SourceLost(
            f"{database.address} has its binlog from {database.name_of(int(first))} on, and has "
            "deleted what came before: changes above the start-ts may be missing. Give a start-ts "
            f"of {safe_ts} ({tso_time(safe_ts):%Y-%m-%d %H:%M:%S} UTC) or later, or say with "
            "binlog-name and binlog-pos where to begin"
        )


def begun_s(database: Database, number: int) -> float:
    """When the server began a file, by its own clock (s since 1970)."""
    head = event_bytes(database.settings, database.facts(), BinlogPosition(number, FIRST_OFFSET))
    return float(int.from_bytes(head[:4], "little"))
