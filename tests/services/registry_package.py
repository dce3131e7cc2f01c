"""Brings Apicurio's registry of schemas into ``.servers``: a part of `make servers`.

It comes from Maven Central by the Ivy that PySpark has, as the broker does. Version 2.6 is the last
one for Java 17. Where it is not to be had, a file says why; the tests that need it are skipped.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.services.database_editions import SERVERS
from tests.services.database_packages import NotToBeHad, call
from tests.services.kafka_broker import java_program

FOLDER: Final = SERVERS / "apicurio"
ABSENT: Final = SERVERS / "apicurio.absent"
_READY: Final = FOLDER / ".ready"
_ATTEMPTS: Final = 3
_NAME, _VERSION = "apicurio-registry-app", "2.6.13.Final"
_IVY: Final = f"""\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="tidelake" module="registry"/>
  <configurations><conf name="registry"/></configurations>
  <dependencies>
    <dependency org="io.apicurio" name="{_NAME}" rev="{_VERSION}" conf="registry->master">
      <artifact name="{_NAME}" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


def program() -> Path:
    """The jar to start. Raises FileNotFoundError with the reason where it is not there."""
    if not _READY.exists():
        why = ABSENT.read_text(encoding="utf-8").strip() if ABSENT.exists() else "run make servers"
        raise FileNotFoundError(f"no Apicurio registry: {why}")
    return next(FOLDER.glob("*-runner.jar"))


def bring() -> str | None:
    """None, or why it is not there after some attempts."""
    reason = None
    for _ in range(_ATTEMPTS):
        reason = _brought()
        if reason is None:
            break
    return reason


def _brought() -> str | None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    ABSENT.unlink(missing_ok=True)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="tidelake-ivy-") as scratch,
            tarfile.open(_download(Path(scratch))) as archive,
        ):
            archive.extractall(FOLDER, filter="data")
    except (NotToBeHad, tarfile.TarError, OSError) as reason:
        shutil.rmtree(FOLDER, ignore_errors=True)
        ABSENT.write_text(f"{reason}\n", encoding="utf-8")
        return str(reason)
    _READY.touch()
    return None


def _download(scratch: Path) -> Path:
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.submodule_search_locations is not None
    ivy = next(Path(pyspark.submodule_search_locations[0]).glob("jars/ivy-*.jar"))
    (scratch / "ivy.xml").write_text(_IVY, encoding="utf-8")
    java = [java_program(), f"-Divy.default.ivy.user.dir={scratch / 'cache'}", "-jar", str(ivy)]
    asked = ["-ivy", str(scratch / "ivy.xml"), "-confs", "registry", "-types", "tar.gz"]
    call([*java, *asked, "-retrieve", f"{scratch}/[artifact].[ext]"])
    return scratch / f"{_NAME}.tar.gz"


def main() -> int:
    """The exit code: a server of packages that did not answer is asked again by the next setup."""
    SERVERS.mkdir(exist_ok=True)
    reason = bring()
    if reason is not None:
        print(f"setup: no Apicurio registry ({reason}): tests with it are skipped", flush=True)
    return int(reason is not None)


if __name__ == "__main__":
    sys.exit(main())
