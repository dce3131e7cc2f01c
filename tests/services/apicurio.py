"""A real registry of schemas on this machine: Apicurio's, by its Confluent-compatible interface.

It keeps its schemas in a file, so that they survive ``kill`` and ``restart``. It has TLS, but no
logins of its own: it asks an OpenID server for them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from coordination.etcd.embedded import free_ports
from tests.services.certificates import Files
from tests.services.child_process import end_child, start_child
from tests.services.kafka_broker import java_program
from tests.services.registry_package import program

START_PATIENCE_S: Final = 60.0  # 4 seconds on a quiet machine
JSON: Final = "application/vnd.schemaregistry.v1+json"
_PATH: Final = "/apis/ccompat/v7"


class Apicurio:
    """``url``: as TiCDC's ``schema-registry``. ``files``: of the certificate that ``tls_url`` has.
    Start it on a thread that outlives it (see ``child_process``)."""

    def __init__(self, files: Files | None = None) -> None:
        self._files = files
        self._port, self._tls_port = free_ports(2)
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Apicurio:
        self.restart()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._end()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        return f"{self.root}{_PATH}"

    @property
    def tls_url(self) -> str:
        return f"https://127.0.0.1:{self._tls_port}{_PATH}"

    def kill(self) -> None:
        """SIGKILL; the schemas stay for ``restart``."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Blocks until it answers."""
        self._end()
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="tidelake-apicurio-"))
        log = self._folder / "log"
        settings = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": self._port,
            "quarkus.http.ssl-port": self._tls_port,
            "java.io.tmpdir": self._folder,
        }
        if self._files is not None:
            settings["quarkus.http.ssl.certificate.files"] = self._files.cert
            settings["quarkus.http.ssl.certificate.key-files"] = self._files.key
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        told = [f"-D{name}={value}" for name, value in settings.items()]
        command = [java_program(), *options, *told, "-jar", str(program())]
        place = (
            f"{self._folder / 'schemas'};WRITE_DELAY=0"  # without it, the last half second is lost
        )
        data = {"REGISTRY_DATASOURCE_URL": f"jdbc:h2:file:{place}"}
        with log.open("ab") as output:
            self._process = start_child(command, output=output, env={**os.environ, **data})
        deadline = time.monotonic() + START_PATIENCE_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise OSError(f"the registry did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.1)

    def register(self, subject: str, schema: str) -> int:
        """The schema's id, as TiCDC gets it."""
        body = json.dumps({"schema": schema, "schemaType": "AVRO"}).encode()
        place = f"{self.url}/subjects/{subject}/versions"
        with urlopen(Request(place, body, {"Content-Type": JSON}), timeout=30) as answer:
            return int(json.load(answer)["id"])

    def _answers(self) -> bool:
        try:
            with urlopen(f"{self.url}/subjects", timeout=5) as answer:
                return bool(answer.status == 200)
        except HTTPError as error:
            error.close()
        except (URLError, OSError):
            pass
        return False

    def _end(self) -> None:
        if self._process is not None:
            end_child(self._process)
            self._process = None
