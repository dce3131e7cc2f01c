"""Brings the database servers of ``database_editions`` into ``.servers``: a part of `make servers`.

Debian's packages come by the ordinary apt client, from the archive that this system's own sources
name, but with an apt state in a folder: no right is needed, and the system stays as it is. Where a
server is not to be had, a file says why; the tests that need it say so too, and setup goes on.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.services.database_editions import EDITIONS, SERVERS, Edition

KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
PATIENCE_S: Final = 300
NEVER_LOADED: Final = ("perl", "libperl")  # what only the servers' scripts want


class NotToBeHad(Exception):
    """One line: why."""


def bring(edition: Edition) -> str | None:
    """None, or why the server is not there."""
    shutil.rmtree(edition.folder, ignore_errors=True)
    absent = SERVERS / f"{edition.name}.absent"
    absent.unlink(missing_ok=True)
    edition.root.mkdir(parents=True)
    try:
        with tempfile.TemporaryDirectory(prefix="tidelake-apt-") as scratch:
            for package in download(edition, Path(scratch)):
                call(["dpkg", "-x", str(package), str(edition.root)])
            make_template(edition, Path(scratch))
    except NotToBeHad as reason:
        shutil.rmtree(edition.folder, ignore_errors=True)
        absent.write_text(f"{reason}\n", encoding="utf-8")
        return str(reason)
    (edition.folder / ".ready").touch()
    return None


def download(edition: Edition, scratch: Path) -> list[Path]:
    """The packages of the edition and all that they depend on, down to the C library."""
    for name in ("state/lists/partial", "cache/archives/partial"):
        (scratch / name).mkdir(parents=True)
    (scratch / "status").touch()  # nothing is installed: every library comes too
    line = f"deb [signed-by={KEYRING}] {archive()} {edition.suite} main\n"
    (scratch / "sources.list").write_text(line, encoding="utf-8")
    (scratch / "apt.conf").write_text(apt_settings(scratch), encoding="utf-8")
    apt = {"APT_CONFIG": str(scratch / "apt.conf")}
    call(["apt-get", "-q", "update"], apt)
    newest = call(["apt-cache", "show", "--no-all-versions", edition.packages[0]], apt)
    version = next(
        (line[9:] for line in newest.splitlines() if line.startswith("Version: ")), "none"
    )
    if not version.startswith(edition.version):
        package = edition.packages[0]
        raise NotToBeHad(f"Debian's {edition.suite} has {package} {version} now")
    call(["apt-get", "-q", "-y", "--download-only", "install", *edition.packages], apt)
    archives = scratch / "cache" / "archives"
    if edition.alone:
        call(["apt-get", "-q", "download", *edition.alone], apt, folder=archives)
    return sorted(path for path in archives.glob("*.deb") if not path.name.startswith(NEVER_LOADED))


def archive() -> str:
    """Where this system has Debian's packages from."""
    if shutil.which("apt-get") is None or not KEYRING.exists():
        raise NotToBeHad("this system has no apt with Debian's keys")
    form = "$(REPO_URI) $(ORIGIN) $(LABEL)"
    for line in call(["apt-get", "indextargets", "--format", form]).splitlines():
        uri, _, rest = line.partition(" ")
        if rest == "Debian Debian":
            return uri
    # Before its first `apt-get update` a system does not know whose archives it has.
    for line in call(["apt-get", "indextargets", "--format", "$(REPO_URI)"]).splitlines():
        if line.rstrip("/").endswith("/debian"):
            return line
    raise NotToBeHad("this system's sources name no archive of Debian")


def apt_settings(scratch: Path) -> str:
    return f"""\
Dir::State "{scratch}/state";
Dir::State::status "{scratch}/status";
Dir::Cache "{scratch}/cache";
Dir::Etc::sourcelist "{scratch}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::http::Timeout "20";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
"""


def make_template(edition: Edition, scratch: Path) -> None:
    """A data folder as it is after installation, with an account ``root`` from anywhere."""
    edition.template.mkdir()
    data = f"--datadir={edition.template}"
    if edition.is_mariadb:
        small = ("--innodb-log-file-size=8M", "--skip-log-bin")
        call(edition.command("--bootstrap", data, *small), text=edition.system_tables())
        return
    init = scratch / "init.sql"
    init.write_text(
        "CREATE USER 'root'@'%';\nGRANT ALL ON *.* TO 'root'@'%' WITH GRANT OPTION;\n",
        encoding="utf-8",
    )
    call(
        edition.command(
            "--initialize-insecure",
            data,
            f"--init-file={init}",
            "--skip-log-bin",
            "--innodb-redo-log-capacity=32M",
        ),
    )
    (edition.template / "auto.cnf").unlink()  # each server makes its own UUID


def call(
    command: list[str],
    environment: Mapping[str, str] | None = None,
    *,
    folder: Path | None = None,
    text: str = "",
) -> str:
    """What the command prints; its last error as the reason where it fails."""
    try:
        done = subprocess.run(
            ["env", *(f"{name}={value}" for name, value in (environment or {}).items()), *command],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            timeout=PATIENCE_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotToBeHad(f"{Path(command[0]).name}: {error}") from error
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        told = [line for line in lines if _is_why(line)] or lines or ["it says no why"]
        raise NotToBeHad(f"{Path(command[0]).name} failed: {told[0].strip()}")
    return done.stdout


def _is_why(line: str) -> bool:
    """As apt, databases and Ivy say it."""
    return line.startswith("E: ") or "ERROR" in line or line.endswith(": not found")


def main() -> None:
    SERVERS.mkdir(exist_ok=True)
    with ThreadPoolExecutor(2) as workers:
        reasons = dict(zip(EDITIONS, workers.map(bring, EDITIONS), strict=True))
    for edition, reason in reasons.items():
        if reason is not None:
            print(f"setup: no {edition.name} ({reason}): tests with it are skipped", flush=True)
    # An archive that did not answer is asked again by the next setup; a system without one is not.
    is_transient = any(reason and " failed: " in reason for reason in reasons.values())
    sys.exit(1 if is_transient else 0)


if __name__ == "__main__":
    main()
