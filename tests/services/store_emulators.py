"""Object stores on this machine: Google's by fake-gcs-server, Azure's by Azurite."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from email.utils import formatdate
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from coordination.etcd.embedded import free_ports
from sinks.storage.open_storage import open_storage
from tests.services.child_process import end_child, start_child
from tests.services.store_packages import azure_program, google_program

PATIENCE_S: Final = 60.0
BUCKET: Final = "lake"
_ACCOUNT: Final = "devstoreaccount1"
# Azurite's own, which its documentation tells everybody.
_KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


class Store(Protocol):
    """One bucket. ``parameters``: of a URI, in TiCDC's words."""

    @property
    def parameters(self) -> str: ...

    def uri(self, folder: str) -> str:
        """Without parameters."""

    def put(self, path: str, text: bytes) -> None:
        """``path``: in the bucket."""


class _Server:
    """A process on a free port, with a folder of its own."""

    def __init__(self) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.folder = Path(tempfile.mkdtemp(prefix="tidelake-store-"))
        self._process = start_child(self._command(port), output=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE_S
        while not self._has_bucket():
            assert self._process.poll() is None, "the store did not start"
            assert time.monotonic() < deadline, "the store does not answer"
            time.sleep(0.1)

    def close(self) -> None:
        end_child(self._process)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _has_bucket(self) -> bool:
        with suppress(OSError):
            self._make_bucket()
            return True
        return False

    def _command(self, port: int) -> list[str]:
        raise NotImplementedError

    def _make_bucket(self) -> None:
        raise NotImplementedError


class Google(_Server):
    """See `Store`. The emulator does not take puts as Google's store does, so it gets them by its
    other interface."""

    @property
    def parameters(self) -> str:
        told = {"client_email": "", "private_key": "", "private_key_id": "", "disable_oauth": True}
        file = self.folder / "key.json"
        file.write_text(json.dumps({**told, "gcs_base_url": self.url}))
        return urlencode({"endpoint": self.url, "credentials-file": str(file)})

    def uri(self, folder: str) -> str:
        return f"gs://{BUCKET}/{folder}"

    def put(self, path: str, text: bytes) -> None:
        told = f"uploadType=media&name={quote(path, safe='')}"
        self._ask(f"upload/storage/v1/b/{BUCKET}/o?{told}", text, "application/octet-stream")

    def _command(self, port: int) -> list[str]:
        told = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
        return [str(google_program()), *told, "-public-host", f"127.0.0.1:{port}"]

    def _make_bucket(self) -> None:
        self._ask("storage/v1/b?project=tests", json.dumps({"name": BUCKET}).encode(), "text/json")

    def _ask(self, path: str, text: bytes, kind: str) -> None:
        asked = Request(f"{self.url}/{path}", data=text, headers={"Content-Type": kind})
        with urlopen(asked) as answer:
            answer.read()


class Azure(_Server):
    """See `Store`."""

    @property
    def parameters(self) -> str:
        told = {"account-name": _ACCOUNT, "account-key": _KEY}
        return urlencode({"endpoint": f"{self.url}/{_ACCOUNT}", **told})

    def uri(self, folder: str) -> str:
        return f"azure://{BUCKET}/{folder}"

    def put(self, path: str, text: bytes) -> None:
        folder, _, name = path.rpartition("/")
        open_storage(f"az://{BUCKET}/{quote(folder)}", self._options).replace(name, text)

    @property
    def _options(self) -> dict[str, str]:
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
            "AZURE_STORAGE_ENDPOINT": f"{self.url}/{_ACCOUNT}",
            "AZURE_ALLOW_HTTP": "true",
        }

    def _command(self, port: int) -> list[str]:
        told = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(self.folder)]
        return ["node", str(azure_program()), *told, "--skipApiVersionCheck", "--silent"]

    def _make_bucket(self) -> None:
        path, date, version = f"/{_ACCOUNT}/{BUCKET}", formatdate(usegmt=True), "2021-12-02"
        told = f"x-ms-date:{date}\nx-ms-version:{version}\n/{_ACCOUNT}{path}\nrestype:container"
        text = "PUT" + "\n" * 12 + told
        signed = hmac.new(base64.b64decode(_KEY), text.encode(), hashlib.sha256)
        signature = base64.b64encode(signed.digest()).decode()
        headers = {
            "x-ms-date": date,
            "x-ms-version": version,
            "Authorization": f"SharedKey {_ACCOUNT}:{signature}",
            "Content-Length": "0",
        }
        asked = Request(f"{self.url}{path}?restype=container", method="PUT", headers=headers)
        with urlopen(asked) as answer:
            answer.read()
