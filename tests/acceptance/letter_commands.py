"""``tidelake dead-letters …``, as an operator gives it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streaming.cli.main import main


class LetterCommands:
    def __init__(self, capfd: pytest.CaptureFixture[str], warehouse: Path) -> None:
        self._capfd = capfd
        self._warehouse = warehouse

    def __call__(self, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
        """The exit code and the rows."""
        self._capfd.readouterr()
        code = 0
        where = ("--sink-uri", f"delta://{self._warehouse}", "--format", "json")
        try:
            main(["dead-letters", *arguments, *where])
        except SystemExit as end:
            code = int(end.code or 0)
        return code, json.loads(self._capfd.readouterr().out or '{"rows": []}')["rows"]

    def states(self, table: str) -> dict[tuple[int, int], str]:
        """By position and index."""
        _, found = self("list", "--table", table)
        return {(each["position"], each["index"]): each["state"] for each in found}
