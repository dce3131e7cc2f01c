"""What is settled when all tables of a first copy are whole: from then on the database is not asked
about them any more. It is kept in a file, so a load that was killed goes on with the same. Also the
folder of a copy, in which one process works."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from conf.settings import Changefeed
from coordination.errors import ConfigError, TidelakeError
from coordination.model import TableName, Ts
from streaming.owner.start_point import columns_told
from streaming.source.dump.chunk_files import refusals
from streaming.source.dump.copy_tables import CopiedTable, copied_table
from streaming.source.dump.manifest import described, table_from_json
from streaming.source.dump.staging import is_of_a_table
from streaming.source.resolved.commit_clock import Pin, from_token, to_token
from streaming.spans.copies.found.left_out import LeftOut
from streaming.spans.copies.moments import Moment

SETTLED: Final = "settled.json"
BEGINS: Final = "begins.json"
BEGINS_PART: Final = "begins.part"
LOCK: Final = "lock"


class CopiedByAnother(TidelakeError):
    """Another process of this machine works in the folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedFrom:
    """A whole copy of a table. The changes from ``begin`` on are to be applied."""

    copied: CopiedTable
    begin: Moment

    @property
    def name(self) -> TableName:
        return self.copied.table.name


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledCopy:
    """``begin``: P0; ``end``: P1, behind which the tables are as the database's. ``pins``: from P0
    to P1, with the GTIDs before both. ``definitions``: CREATE TABLE statements, with USE.
    ``server``: its identity. ``chosen``: by which settings tables were chosen (`chosen_by`).
    ``is_mariadb``, ``omits_generated``: see `ServerFacts`."""

    server: str
    chosen: str
    begin: Moment
    end: Moment
    pins: tuple[Pin, ...]
    definitions: str
    tables: tuple[CopiedFrom, ...]
    left_out: tuple[LeftOut, ...] = ()
    is_mariadb: bool = False
    omits_generated: bool = False

    @property
    def rows(self) -> int:
        return sum(each.copied.rows for each in self.tables)

    def save(self, folder: Path) -> None:
        """It is on the disk afterwards. Raises StagingFull and StagingFailed."""
        fields = {
            "server": self.server,
            "chosen": self.chosen,
            "begin": self.begin,
            "end": self.end,
            "pins": to_token(self.pins),
            "definitions": self.definitions,
            "tables": [
                {"table": described(each.copied.table), "begin": each.begin} for each in self.tables
            ],
            "is_mariadb": self.is_mariadb,
            "omits_generated": self.omits_generated,
            "left_out": [
                [*asdict(each.name).values(), each.rows, each.why] for each in self.left_out
            ],
        }
        part = folder / f"{SETTLED}.part"
        with refusals(folder), part.open("w", encoding="utf-8") as file:
            json.dump(fields, file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(folder / SETTLED)

    @classmethod
    def load(cls, folder: Path) -> SettledCopy | None:
        """None: the tables are not whole yet."""
        path = folder / SETTLED
        if not path.exists():
            return None
        fields: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            server=fields["server"],
            chosen=fields["chosen"],
            begin=_moment(fields["begin"]),
            end=_moment(fields["end"]),
            pins=from_token(fields["pins"]),
            definitions=fields["definitions"],
            tables=tuple(
                CopiedFrom(
                    copied=copied_table(folder, table_from_json(each["table"])),
                    begin=_moment(each["begin"]),
                )
                for each in fields["tables"]
            ),
            is_mariadb=fields["is_mariadb"],
            omits_generated=fields["omits_generated"],
            left_out=tuple(
                LeftOut(name=TableName(schema, table), rows=rows, why=why)
                for schema, table, rows, why in fields.get("left_out", ())
            ),
        )


def chosen_by(changefeed: Changefeed) -> str:
    """The settings that decide which tables are copied, and how."""
    given = changefeed.filter
    parts = {
        "rules": list(given.rules),
        "case-sensitive": given.case_sensitive,
        "tables": [asdict(rule) for rule in changefeed.sink.tables],
        "on-no-key": changefeed.on_no_key,
    }
    routes = [asdict(rule) for rule in changefeed.sink.routes]
    columns = columns_told(replace(changefeed.sink, mask_salt=None))
    told = {**parts, **({"routes": routes} if routes else {}), **columns}
    return json.dumps(told, sort_keys=True)


def _moment(pair: tuple[int, int]) -> Moment:
    return Moment(pair[0], Ts(pair[1]))


def is_of_a_copy(folder: Path) -> bool:
    """Whether the folder may be used by a copy: it is one's already, or has nothing but a lock and
    what a full disk or a kill has left of the first file."""
    names = {path.name for path in folder.iterdir()} - {LOCK, BEGINS_PART}
    return not names or bool(names & {BEGINS, SETTLED, f"{SETTLED}.part"})


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """One process of this machine works in the folder, which is made. Raises TidelakeError."""
    with refusals(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if not is_of_a_copy(folder):
            raise ConfigError(
                f"{folder} has files, and none of a copy: give an empty folder, or none yet"
            )
        file = (folder / LOCK).open("w")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise CopiedByAnother(
                f"another process is copying the tables of this changefeed, into {folder}: let it "
                "end, or stop it"
            ) from error
        yield


def forget_copy(folder: Path) -> None:
    """Delete what a copy has left in the folder; the folder itself, and files of others, stay."""
    for name in (SETTLED, f"{SETTLED}.part", BEGINS_PART):
        (folder / name).unlink(missing_ok=True)  # first: it says that all tables are whole
    for path in folder.iterdir():
        if path.is_dir() and is_of_a_table(path):
            shutil.rmtree(path)
    (folder / BEGINS).unlink(missing_ok=True)  # last: without it the folder is nobody's


def end_copy(folder: Path) -> None:
    """Delete the folder of a copy that is done, if it is there. Whenever that is killed, the next
    copy may have the folder."""
    with suppress(OSError):  # it is in nobody's way
        forget_copy(folder)
    shutil.rmtree(folder, ignore_errors=True)
