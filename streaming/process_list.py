"""This process as others see it: its arguments may have been given with a password in them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from conf.masking import masked_uri

_ARG_START, _ARG_END = 45, 46  # of /proc/<pid>/stat, counted behind the name


def mask_arguments() -> None:
    """Overwrite what `ps` shows, as database clients do. Linux only; elsewhere nothing happens.

    Between the start of the process and this call it could be read: a reference never can."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            shown = memory.read(end - start)
            hidden = b"\0".join(map(_hidden, shown.split(b"\0")))
            if hidden != shown:
                memory.seek(start)
                memory.write(hidden)


def _hidden(argument: bytes) -> bytes:
    """As long as it was: the kernel goes by the place."""
    text = argument.decode("utf-8", "surrogateescape")
    hidden = masked_uri(text).encode("utf-8", "surrogateescape")
    return argument if hidden == argument else hidden[: len(argument)].ljust(len(argument))
