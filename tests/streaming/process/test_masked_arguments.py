"""What `ps` shows of a process that was given a password."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from pathlib import Path
from streaming.process.masked_arguments import mask_arguments
mask_arguments()
print(Path("/proc/self/cmdline").read_bytes().split(bytes(1)))
print(sys.argv[1])
"""


def test_a_password_is_overwritten_in_place() -> None:
    uri = "kafka://h:1/t?sasl-user=u&sasl-password=marked-secret&ca=/ü"
    shown = subprocess.run(
        [sys.executable, "-c", PROGRAM, uri, "--sink-uri", "delta:///x"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    listed, given = shown.splitlines()
    assert "marked-secret" not in listed
    assert "sasl-password=***&ca=/" in listed
    assert "'--sink-uri', b'delta:///x'" in listed
    assert given == uri
