"""An S3 server for tests: moto's, in this process, with conditional puts (``If-None-Match``)."""

from __future__ import annotations

import logging

import boto3
from moto.server import ThreadedMotoServer

KEY_ID, SECRET, REGION = "tidelake", "tidelake-secret", "us-east-1"


class S3Server:
    """One bucket on a free port of the loopback; everything is gone when it stops."""

    bucket = "lake"

    def __enter__(self) -> S3Server:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        _, port = self._server.get_host_and_port()
        self.url = f"http://127.0.0.1:{port}"
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
        self._server.stop()

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
