"""The database servers that tests start: where each comes from, and how it is called."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
SERVERS: Final = (REPOSITORY / ".servers").resolve()
# The system's own tables, in the order in which MariaDB's installer reads them.
_SYSTEM_TABLES: Final = ("system_tables", "performance_tables", "system_tables_data")


@dataclass(frozen=True, kw_only=True)
class Edition:
    """A server out of Debian's packages, unpacked into a folder with every library it needs.

    It runs by the C library in that folder, so a newer suite's server starts on an older system.
    """

    name: str
    suite: str
    version: str  # what the package's version begins with: suites move
    packages: tuple[str, ...]
    alone: tuple[str, ...] = ()  # packages without what they depend on
    program: str
    share: str
    scripts: str = ""  # what MariaDB's own scripts are called before "_system_tables.sql"
    settings: tuple[str, ...] = ()
    is_required: bool = False  # a CI without it fails

    @property
    def folder(self) -> Path:
        return SERVERS / self.name

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def template(self) -> Path:
        """A data folder with the system's tables, and ``root`` without a password."""
        return self.folder / "data"

    @property
    def is_ready(self) -> bool:
        return (self.folder / ".ready").exists()

    @property
    def is_mariadb(self) -> bool:
        return bool(self.scripts)

    @property
    def absence(self) -> str | None:
        """Why it is not there, as one line; None where it is."""
        if self.is_ready:
            return None
        note = SERVERS / f"{self.name}.absent"
        why = note.read_text(encoding="utf-8").strip() if note.exists() else "run make servers"
        return f"no {self.name} in .servers: {why}"

    def command(self, *arguments: str) -> list[str]:
        """``arguments`` for the server itself, behind those that say where its files are."""
        share = self.root / "usr/share" / self.share
        return [
            *self.run(f"usr/sbin/{self.program}"),
            "--no-defaults",
            f"--lc-messages-dir={share}",
            f"--character-sets-dir={share / 'charsets'}",
            f"--plugin-dir={self.root / 'usr/lib/mysql/plugin'}",
            *(("--user=root",) if os.geteuid() == 0 else ()),
            *self.settings,
            *arguments,
        ]

    def run(self, program: str) -> list[str]:
        """The command of any program in the folder, such as ``usr/bin/mariadb-dump``."""
        places = ("lib/*-linux-gnu", "usr/lib/*-linux-gnu", "usr/lib64")
        libraries = [str(path) for place in places for path in self.root.glob(place)]
        loaders = sorted(self.root.glob("**/ld-linux*.so*"))
        assert loaders, f"{self.name} has no loader"
        program_path = str(self.root / program)
        return [str(loaders[0]), "--library-path", ":".join(libraries), program_path]

    def system_tables(self) -> str:
        """The SQL that MariaDB's ``--bootstrap`` reads."""
        share = self.root / "usr/share" / self.share
        parts = [share / f"{self.scripts}_{name}.sql" for name in _SYSTEM_TABLES]
        parts.append(share / "maria_add_gis_sp_bootstrap.sql")
        texts = [path.read_text(encoding="utf-8") for path in parts]
        grant = "GRANT ALL ON *.* TO 'root'@'%' WITH GRANT OPTION;\n"
        return "\n".join(
            ("CREATE DATABASE mysql;", "USE mysql;", *texts, "FLUSH PRIVILEGES;", grant)
        )


MARIADB_10_11: Final = Edition(
    name="mariadb-10.11",
    suite="bookworm",
    version="1:10.11.",
    packages=("mariadb-server-core", "mariadb-client-core"),
    alone=("mariadb-client",),  # mariadb-dump; the rest of what it wants is Perl
    program="mariadbd",
    share="mysql",
    scripts="mysql",
    is_required=True,
)
MARIADB_11_8: Final = Edition(
    name="mariadb-11.8",
    suite="trixie",
    version="1:11.8.",
    packages=("mariadb-server-core",),
    program="mariadbd",
    share="mariadb",
    scripts="mariadb",
)
MYSQL_9_7: Final = Edition(
    name="mysql-9.7",
    suite="sid",
    version="9.7.",
    packages=("mysql-server-core",),
    program="mysqld",
    share="mysql",
    settings=("--secure-file-priv=NULL", "--mysqlx=OFF", "--performance-schema=OFF"),
)
EDITIONS: Final[Sequence[Edition]] = (MARIADB_10_11, MARIADB_11_8, MYSQL_9_7)
