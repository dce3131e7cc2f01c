"""The version of this Tidelake, and which versions may share a cluster: a release and those next to
it, so that captures can be replaced one by one."""

from __future__ import annotations

import re
from importlib import metadata
from typing import Final

MINORS_APART: Final = 1  # 0.4.x works together with 0.3.x, 0.4.y and 0.5.x
_RELEASE: Final = re.compile(r"v?(\d+)\.(\d+)\b")


def tidelake_version() -> str:
    """The version of the installed package; ``dev`` if it is run from a folder."""
    try:
        return metadata.version("tidelake")
    except metadata.PackageNotFoundError:
        return "dev"


def work_together(one: str, other: str) -> bool:
    """Whether captures of these two versions work together; a version without a number (``dev``)
    works with any."""
    first, second = _RELEASE.match(one), _RELEASE.match(other)
    if first is None or second is None:
        return True
    (major, minor), (other_major, other_minor) = map(int, first.groups()), map(int, second.groups())
    return major == other_major and abs(minor - other_minor) <= MINORS_APART
