"""Why a JVM did not start, of what it said: the line that tells, and the way out. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_CAUSED_BY: Final = "Caused by: "
# Frames, and what follows or precedes the reason, whatever it is.
_TELLS_NOTHING: Final = re.compile(
    r"\s+at |\s*\.\.\. \d+ more|Error occurred during initialization of VM|:: USE VERBOSE"
    r"|Error: Could not create the Java Virtual|Error: A fatal exception has occurred"
    r"|# |.*: line \d+: CMD: bad array subscript|\s*$"
)
_THREAD: Final = re.compile(r'Exception in thread "[^"]*" ')
_KILLED: Final = (-9, 137)
_MEMORY: Final = (
    "It gets too little memory: its heap is SPARK_DRIVER_MEMORY, 4g where that is not set, and "
    "needs some 2 GB beside it within `ulimit -v`, the container's limit and the machine"
)
_WAYS: Final = (
    (
        r"Could not (reserve|allocate)|insufficient memory|OutOfMemoryError|unable to create native"
        r"|Cannot allocate memory",
        _MEMORY,
    ),
    (
        r"UnknownHostException",
        "The machine's own name has no address: give it one in /etc/hosts, or set SPARK_LOCAL_IP "
        "(and SPARK_LOCAL_HOSTNAME) to one that the executors reach",
    ),
    (
        r"unresolved dependency|download failed|ClassNotFoundException: io\.delta"
        r"|NoClassDefFoundError: io/delta",
        "A jar of Delta is missing: `tidelake jars DIR` fetches all of them, also from a mirror, "
        "and TIDELAKE_JARS=DIR names the folder",
    ),
    (
        r"Invalid (maximum|initial) heap size|Too small .* heap|VM option|Unrecognized option",
        "Mend SPARK_DRIVER_MEMORY (as 4g), or what JDK_JAVA_OPTIONS, JAVA_TOOL_OPTIONS or "
        "SPARK_SUBMIT_OPTS give to Java",
    ),
)


def told(said: Sequence[str], code: int) -> str:
    """The cause, of the lines that a JVM said before it ended with this code."""
    lines = [each for each in said if not _TELLS_NOTHING.match(each)]
    causes = [each for each in lines if each.startswith(_CAUSED_BY)]
    thrown = [each for each in lines if _THREAD.match(each)]
    if code in _KILLED:
        return f"it was killed (exit code {code})"
    if not lines:
        return f"exit code {code}"
    last = (causes or thrown or lines)[-1].strip()
    return _THREAD.sub("", last.removeprefix(_CAUSED_BY)).rstrip(".")


def way_out(cause: str) -> str:
    """What to do about a cause; empty where that is not known."""
    if cause.startswith("it was killed"):
        return _MEMORY
    return next((way for told, way in _WAYS if re.search(told, cause)), "")
