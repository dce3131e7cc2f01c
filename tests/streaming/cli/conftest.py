"""The program in this process, on a cluster of a test's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from coordination.etcd.embedded import EmbeddedEtcd
from streaming.changefeed import preflight
from streaming.cli.main import main

Cluster = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def command(
    etcd: EmbeddedEtcd, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """The program, in this process, on a cluster of the test's own; no broker is asked."""
    monkeypatch.setattr(preflight, "findings", lambda _changefeed, *, is_new: [])  # noqa: ARG005
    monkeypatch.setenv("TIDELAKE_ETCD", etcd.endpoint)
    monkeypatch.setenv("TIDELAKE_CLUSTER_ID", f"c-{uuid4().hex[:8]}")

    def run(*arguments: str) -> tuple[int, str, str]:
        code = 0
        try:
            main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
        return code, *capfd.readouterr()

    return run


@pytest.fixture
def cluster(command: Callable[..., tuple[int, str, str]]) -> Cluster:
    """A command that must work; its rows."""

    def run(*arguments: str) -> list[dict[str, Any]]:
        code, out, err = command(*arguments, "--format", "json")
        assert (code, err) == (0, ""), err
        rows: list[dict[str, Any]] = json.loads(out)["rows"]
        return rows

    return run
