"""An S3 server for tests: moto's (``s3_app``), with conditional puts (``If-None-Match``).

In a process of its own: delta-rs holds the interpreter while it waits for some of its answers.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import boto3

from coordination.etcd.embedded import free_ports
from tests.services.child_process import end_child, start_child

ROOT = Path(__file__).resolve().parents[2]
KEY_ID, SECRET, REGION = "AKIDOFTHETESTS", "secret-of-the-tests", "us-east-1"
PATIENCE_S = 60.0


class S3Server:
    """One bucket on a free port of the loopback; everything is gone when it stops."""

    bucket = "lake"

    def __enter__(self) -> S3Server:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "tests.services.s3_app", str(port)]
        self._process = start_child(command, output=subprocess.DEVNULL, cwd=str(ROOT))
        deadline = time.monotonic() + PATIENCE_S
        while not _answers(port):
            assert self._process.poll() is None, "moto did not start"
            assert time.monotonic() < deadline, "moto does not answer"
            time.sleep(0.05)
        client = boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=KEY_ID,
            aws_secret_access_key=SECRET,
        )
        client.create_bucket(Bucket=self.bucket)
        return self

    def __exit__(self, *_: object) -> None:
        end_child(self._process)

    @property
    def options(self) -> dict[str, str]:
        """What a user gives to ``deltalake`` and to us."""
        return {
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
        }


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
