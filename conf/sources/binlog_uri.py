"""The URI of a database: its binlog is read, without a TiCDC in between.

Parameters have DM's names where DM has one. The scheme may be either one for either server: the
server itself says which it is. Databases and tables are chosen by ``[filter] rules``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Literal, get_args
from urllib.parse import SplitResult, quote

from conf.problems import Problems, require
from conf.setting import setting
from conf.sources.database_server import (
    DatabaseServer,
    check_parameters,
    choice,
    noted_numbers,
    noted_server,
    place,
    places_of,
    refuse_an_at_sign,
)

SCHEMES: Final = ("mysql", "mariadb")
BINLOG: Final = "binlog"  # the form of what is read
FORM: Final = "it must look like mysql://user@host:3306/?task-mode=all"
TaskMode = Literal["all", "full", "incremental", "dump", "load&sync"]
OF_A_DUMP: Final = ("dump", "load&sync")  # what is copied stays in a folder of the user's
NOT_BUILT: Final = {
    "server-id": "server-id: each connection takes one of its own, from 2^31 on",
    "time-zone": "time-zone is of texts that TiCDC made: a database tells moments. Leave it out "
    "(ddl-time-zone is the zone of the sessions that run DDLs)",
}
FIRST_POSITION: Final = 4  # a binlog's first event, behind four bytes of magic

_BINLOG = re.compile(r"[^/\\\0]+\.\d{6,}")
_UUID: Final = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_OF_MYSQL: Final = rf"{_UUID}(:([a-zA-Z_]\w*|[1-9]\d*(-[1-9]\d*)?))+"
_GTIDS: Final = re.compile(rf"{_OF_MYSQL}(,{_OF_MYSQL})*|\d+-\d+-\d+(,\d+-\d+-\d+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class BinlogSettings(DatabaseServer):
    """``mysql://user:password@host:3306,replica:3306/?task-mode=all&…`` (or ``mariadb://``).

    ``others``: further servers, host and port, that have the same data by replication."""

    scheme: Literal["mysql", "mariadb"] = "mysql"
    port: int = 3306
    others: tuple[tuple[str, int], ...] = ()
    task_mode: TaskMode = setting(
        "task-mode",
        "all",
        "`all`: tables are copied as they are, then followed; `full`: copied, and no more; "
        "`incremental`: the changes from a place in the binlog on; `dump`: copied into `dump-dir`; "
        "`load&sync`: what lies there is loaded, then followed",
    )
    dump_dir: str | None = setting(
        "dump-dir",
        says="the local folder of the copy, with `dump` and `load&sync`; it is not deleted",
    )
    binlog_name: str | None = setting(
        "binlog-name",
        says="the binlog file where an incremental task begins, as `SHOW BINARY LOGS` names it; "
        "without it, the oldest that the server has",
    )
    binlog_pos: int = setting(
        "binlog-pos", FIRST_POSITION, "the position in that file: the start of an event"
    )
    binlog_gtid: str | None = setting(
        "binlog-gtid",
        says="instead of these, the GTIDs that lie before: MySQL's set (`@@gtid_executed` of a "
        "backup) or MariaDB's list (`@@gtid_binlog_pos`)",
    )

    @property
    def name(self) -> str:
        """The name of a changefeed that has none of its own. It does not name the host: after a
        failover the changefeed goes on with another one."""
        return self.scheme

    @property
    def servers(self) -> tuple[BinlogSettings, ...]:
        """Each server by itself, in the order given."""
        places = ((self.host, self.port), *self.others)
        return tuple(replace(self, host=host, port=port, others=()) for host, port in places)

    @property
    def address(self) -> str:
        """``host:port``, as a sentence names the server; several with commas between."""
        return ",".join(place(*each) for each in ((self.host, self.port), *self.others))

    @property
    def uri(self) -> str:
        """The source, without the login."""
        mode = quote(self.task_mode)
        return f"{self.scheme}://{self.address}/?task-mode={mode}"

    @property
    def own_warehouse(self) -> str | None:
        """The folder of a dump, since nothing else is written."""
        return str(Path(self.dump_dir or "").absolute()) if self.task_mode == "dump" else None

    @property
    def protocol(self) -> str:
        """The form of what is read, as ``streaming/protocols`` names it."""
        return BINLOG

    @property
    def time_zone(self) -> str:
        """The zone of the texts of TIMESTAMPs: a binlog has moments, and a copy asks for UTC."""
        return "UTC"

    @property
    def agreed(self) -> dict[str, str | int | None]:
        """As for Kafka. All captures must read the same server, or the same one of several."""
        return {
            "server": self.address,
            "task-mode": self.task_mode,
            "binlog-name": self.binlog_name,
            "binlog-pos": self.binlog_pos if self.binlog_name else None,
            "binlog-gtid": self.binlog_gtid,
        }


PARAMETERS: Final = tuple(
    each.metadata["key"] for each in fields(BinlogSettings) if "key" in each.metadata
)
KNOWN: Final = (*PARAMETERS, "server-id", "time-zone")
_WITH_AND: Final = {"task-mode": "load", "sync": ""}  # `task-mode=load&sync`, cut at its `&`
_TEXTS: Final = ("password", "ca", "cert", "key")
_NUMBERS: Final[Mapping[str, tuple[int, str]]] = {
    "binlog-pos": (2**32, "must be a position: 4 or above, below 2^32"),
}


def joined(parameters: Mapping[str, str]) -> dict[str, str]:
    """The parameters of a URI where the `&` of a mode may stand as it is."""
    if _WITH_AND.items() <= parameters.items():
        others = {name: text for name, text in parameters.items() if name not in _WITH_AND}
        return {**others, "task-mode": "load&sync"}
    return dict(parameters)


def check_binlog_parameters(parts: SplitResult, parameters: Mapping[str, str]) -> None:
    """Raise one SettingError for all parameters that are unknown or not built."""
    check_parameters(parts, parameters, KNOWN, NOT_BUILT)


def parse_binlog_uri(parts: SplitResult, parameters: Mapping[str, str]) -> BinlogSettings:
    """Raises SettingError. No message repeats text that may be part of a password."""
    refuse_an_at_sign(parts)
    given = {name: text for name, text in parameters.items() if text}
    problems = Problems()
    made: dict[str, Any] = {"scheme": parts.scheme}
    with problems.noted():
        check_binlog_parameters(parts, parameters)
    with problems.noted():
        (made["host"], made["port"]), *others = places_of(parts, 3306, FORM)
        made["others"] = tuple(others)
    noted_server(made, parts, given, FORM, problems)
    with problems.noted():
        made |= _task_mode(given)
    with problems.noted():
        made |= _begin(given)
    noted_numbers(made, given, _NUMBERS, problems)
    problems.refuse()
    return BinlogSettings(**made)


def check_target(source: object, target_ts: int | None) -> None:
    """Raises SettingError for a target that a user may not give in the task's mode."""
    mode = getattr(source, "task_mode", "")
    require(
        target_ts is None or mode not in ("full", "dump"),
        f"target-ts: task-mode={mode} ends with the copy: leave target-ts out",
    )


def _task_mode(given: Mapping[str, str]) -> dict[str, str]:
    mode = choice("task-mode", given.get("task-mode", "all"), get_args(TaskMode))
    folder, is_wanted = given.get("dump-dir"), mode in OF_A_DUMP
    require(
        folder is not None or not is_wanted,
        f"task-mode={mode} needs dump-dir, the local folder of the dump",
    )
    require(
        folder is None or is_wanted,
        f"dump-dir: only with task-mode=dump or load&sync, and this is {mode}",
    )
    require("://" not in (folder or ""), f"dump-dir={folder}: it must be a local folder")
    return {"task_mode": mode} | ({"dump_dir": folder} if folder else {})


def _begin(given: Mapping[str, str]) -> dict[str, str]:
    name, gtid = given.get("binlog-name"), given.get("binlog-gtid")
    wanted = [each for each in ("binlog-name", "binlog-pos", "binlog-gtid") if each in given]
    require(
        not wanted or given.get("task-mode") == "incremental",
        f"{' and '.join(wanted)}: only with task-mode=incremental (a copy knows where it began)",
    )
    if gtid is not None:
        require(
            wanted == ["binlog-gtid"],
            f"{' and '.join(wanted)}: a GTID is a place by itself, leave the file's name and "
            "position out",
        )
        require(
            _GTIDS.fullmatch("".join(gtid.split())) is not None,
            f"binlog-gtid={gtid} is no set of GTIDs: give what the server says as "
            "@@gtid_executed (MySQL) or @@gtid_binlog_pos (MariaDB)",
        )
        return {"binlog_gtid": "".join(gtid.split())}
    if name is None:
        require(not wanted, "binlog-pos without binlog-name: name the file too")
        return {}
    require(
        _BINLOG.fullmatch(name) is not None,
        f"binlog-name={name} is no binlog file: give a name that SHOW BINARY LOGS shows, such as "
        "mysql-bin.000001",
    )
    position = given.get("binlog-pos", "")
    require(position not in ("1", "2", "3"), f"binlog-pos={position} {_NUMBERS['binlog-pos'][1]}")
    return {"binlog_name": name}
