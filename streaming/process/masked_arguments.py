"""Hide passwords in this process's arguments, which other users see in the process list."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from conf.masking import masked_uri

_ARG_START, _ARG_END = 45, 46  # fields of /proc/<pid>/stat, counted after the process's name


def mask_arguments() -> None:
    """Mask the secrets in the arguments that `ps` shows, as database clients do. On Linux only;
    elsewhere it does nothing.

    Until this call they could be read. A reference (``secret_references.py``) in their place never
    can."""
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
    """The masked argument, of the same length: the kernel finds arguments by their place."""
    text = argument.decode("utf-8", "surrogateescape")
    hidden = masked_uri(text).encode("utf-8", "surrogateescape")
    return argument if hidden == argument else hidden[: len(argument)].ljust(len(argument))
