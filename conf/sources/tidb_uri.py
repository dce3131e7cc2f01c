"""The URI of a TiDB: its tables are copied as of one TSO, and TiCDC sends what comes later.

A scheme of its own, since nothing of ``mysql://`` but the server's login holds here: a TiDB has no
binlog, so there is no place to begin and nothing to follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal
from urllib.parse import SplitResult

from conf.forms import other_unit
from conf.problems import Problems, SettingError, require
from conf.setting import setting
from conf.sources.database_server import (
    DatabaseServer,
    check_parameters,
    choice,
    noted_server,
    places_of,
    refuse_an_at_sign,
)
from conf.sources.source_parameters import number

SCHEME: Final = "tidb"
FORM: Final = "it must look like tidb://user@host:4000/"
PORT: Final = 4000
NOT_BUILT: Final = {
    "time-zone": "time-zone is of texts that TiCDC made, and stands in the Kafka URI: a copy reads "
    "moments. Leave it out",
    "dump-dir": "dump-dir: a copy of a TiDB is loaded at once. Leave it out",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TidbSettings(DatabaseServer):
    """``tidb://user:password@host:4000/?snapshot-ts=…``"""

    port: int = PORT
    task_mode: Literal["full"] = setting("task-mode", "full", "`full`, the only one")
    snapshot_ts: int | None = setting(
        "snapshot-ts", says="the TSO as of which tables are copied; without it, the present one"
    )

    @property
    def name(self) -> str:
        """Raises SettingError: no changefeed is named after a TiDB."""
        raise SettingError(
            "changefeed-id is missing: the copy of a TiDB fills the tables of a changefeed that "
            "goes on from Kafka, so give its ID (without one that is the topic's name)"
        )

    @property
    def uri(self) -> str:
        """The source, without the login."""
        return f"{SCHEME}://{self.address}/"

    @property
    def protocol(self) -> str:
        """As for a database whose binlog is read: cells come typed, not as TiCDC's texts."""
        return "binlog"

    @property
    def time_zone(self) -> str:
        return "UTC"

    @property
    def agreed(self) -> dict[str, str | int | None]:
        """As for Kafka."""
        return {"server": self.address, "snapshot-ts": self.snapshot_ts}


PARAMETERS: Final = tuple(
    each.metadata["key"] for each in fields(TidbSettings) if "key" in each.metadata
)
KNOWN: Final = (*PARAMETERS, *NOT_BUILT)


def check_tidb_parameters(parts: SplitResult, parameters: Mapping[str, str]) -> None:
    """Raise one SettingError for all parameters that are unknown or not built."""
    check_parameters(parts, parameters, KNOWN, NOT_BUILT)


def parse_tidb_uri(parts: SplitResult, parameters: Mapping[str, str]) -> TidbSettings:
    """Raises SettingError. No message repeats text that may be part of a password."""
    refuse_an_at_sign(parts)
    given = {name: text for name, text in parameters.items() if text}
    problems = Problems()
    made: dict[str, Any] = {}
    with problems.noted():
        check_tidb_parameters(parts, parameters)
    with problems.noted():
        places = places_of(parts, PORT, FORM)
        require(len(places) == 1, "several servers: a copy reads one TiDB, or its load balancer")
        ((made["host"], made["port"]),) = places
    noted_server(made, parts, given, FORM, problems)
    with problems.noted():
        made["task_mode"] = _task_mode(given)
    with problems.noted():
        made["snapshot_ts"] = _snapshot_ts(given)
    problems.refuse()
    return TidbSettings(**made)


def check_start(source: object, values: Mapping[str, Any]) -> None:
    """Raises SettingError for a TSO that says where to begin, and does not to a copy."""
    given = [name for name in ("start-ts", "overwrite-checkpoint-ts") if values.get(name)]
    require(
        not given or not isinstance(source, TidbSettings),
        f"{' and '.join(given)}: the copy of a TiDB is as of its parameter snapshot-ts, or of the "
        "present",
    )


def _task_mode(given: Mapping[str, str]) -> str:
    mode = given.get("task-mode", "full")
    require(
        mode not in ("all", "incremental", "load&sync", "dump"),
        f"task-mode={mode}: a TiDB has no binlog that could be followed. It is copied "
        "(task-mode=full, which may be left out), and TiCDC sends to Kafka what comes later",
    )
    return choice("task-mode", mode, ("full",))


def _snapshot_ts(given: Mapping[str, str]) -> int | None:
    ts = number(given, "snapshot-ts", 2**63, "must be a TSO, such as 452654700134990849")
    wrong = None if ts is None else other_unit(ts)
    require(wrong is None, f"snapshot-ts={wrong}")
    return ts
