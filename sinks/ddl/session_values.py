"""Which values of old rows depend on the session that ran a DDL. Pure.

TiDB reads and writes TIMESTAMPs in the time zone of that session, and CURRENT_TIMESTAMP is the time
at which its statement began. Messages tell neither, so both are assumed (docs/ddl.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coordination.model import Ts, tso_time
from sinks.ddl.column_origin import ColumnOrigin
from sinks.types.table_schema import CURRENT_TIMESTAMP
from sinks.types.text_arrays import CastRules

_ZERO_DATE = "0000-00-00"
_TIMES = ("date", "datetime", "timestamp", "time", "year")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionValues:
    """The values that a DDL gives old rows and that nobody knows exactly. ``zoned``: columns whose
    values need the session's time zone; ``timed``: columns that need the second at which the
    statement began."""

    zoned: tuple[str, ...] = ()
    timed: tuple[str, ...] = ()

    @classmethod
    def of(cls, origins: Iterable[ColumnOrigin], rules: CastRules) -> SessionValues:
        """Where a setting tells the time zone, no value is unknown for its sake."""
        found = list(origins)
        is_told = rules.ddl_time_zone is not None
        return cls(
            zoned=() if is_told else tuple(each.name for each in found if _is_zoned(each)),
            timed=tuple(
                each.name
                for each in found
                if _is_timed(each) and (each.session is None or each.session.began_us is None)
            ),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.zoned, *self.timed)))

    def told(self, rules: CastRules, commit_ts: Ts) -> str:
        """Sentences that say what is assumed, and what an operator may do; empty: nothing is
        assumed."""
        parts = []
        if self.timed:
            parts.append(
                f"{_listed(self.timed)} of old rows has the second of the DDL's commit "
                f"({tso_time(commit_ts):%F %T} UTC); TiDB's is that at which the statement began, "
                "which no message tells"
            )
        if self.zoned:
            parts.append(
                f"{_listed(self.zoned)} of old rows depends on the time zone of the session that "
                f"ran it, which is taken to be the source's, {rules.time_zone}: ddl-time-zone says "
                "another one, and that it is known"
            )
        return "; ".join(parts)

    def refused(self, why: str) -> str:
        """``why`` they could never be mended."""
        parts = []
        if self.timed:
            parts.append(
                f"{_listed(self.timed)} has the second at which the statement began, which no "
                "message tells: look in TiDB for the value of old rows, and apply the DDL with it "
                "as the DEFAULT"
            )
        if self.zoned:
            parts.append(
                f"{_listed(self.zoned)} depends on the time zone of the session that ran it, which "
                "no message tells: set ddl-time-zone, also where it is that of the source, and "
                "start again (in a cluster: pause, update and resume the changefeed)"
            )
        return f"{'; '.join(parts)}. A wrong value could never be mended: {why}"


def _is_zoned(origin: ColumnOrigin) -> bool:
    if origin.session is not None and origin.session.time_zone:
        return False
    if origin.fill is not None:
        of, text = origin.fill
        is_moment = of.name == "timestamp"
        return is_moment != _is_timed(origin) and not text.startswith(_ZERO_DATE)
    return origin.types is not None and sum(of.name == "timestamp" for of in origin.types) == 1


def _is_timed(origin: ColumnOrigin) -> bool:
    return (
        origin.fill is not None
        and origin.fill[0].name in _TIMES
        and origin.fill[1] == CURRENT_TIMESTAMP
    )


def _listed(names: tuple[str, ...]) -> str:
    return ("column " if len(names) == 1 else "columns ") + ", ".join(names)
