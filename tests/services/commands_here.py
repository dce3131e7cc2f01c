"""Commands of the program in this process: for tests of what they do. What a process of theirs
says as it ends is told by tests of its own."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from streaming.cli.main import main


class Done(NamedTuple):
    code: int
    out: str
    err: str


def run_here(*arguments: str) -> Done:
    """As ``tidelake …`` does it; one at a time."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(list(arguments))
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Done(code, out.getvalue(), err.getvalue())
