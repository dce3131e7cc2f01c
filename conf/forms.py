"""The forms that texts of settings must have: IDs, addresses, time zones."""

from __future__ import annotations

import re
from zoneinfo import ZoneInfo

ID_MAX_LENGTH = 128
_ID = re.compile(r"^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$")  # TiCDC's rule
_ADDRESS = re.compile(r"^(\[[0-9a-fA-F:.]+\]|[^\[\]:/\s]+):([0-9]{1,5})$")
_OFFSET = re.compile(r"^[+-](0\d|1[0-8]):[0-5]\d$")


def is_id(text: str) -> bool:
    """TiCDC's rule for the IDs of changefeeds and clusters."""
    return len(text) <= ID_MAX_LENGTH and _ID.fullmatch(text) is not None


def is_address(text: str) -> bool:
    """Whether it is ``host:port``. A port above 65535 must not come to the socket's functions,
    which take another one for it in silence."""
    found = _ADDRESS.fullmatch(text)
    return found is not None and int(found[2]) < 65536


def is_time_zone(name: str) -> bool:
    """Whether it is the name of a zone, or an offset such as +08:00."""
    if _OFFSET.match(name):
        return True
    try:
        ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # unknown; a folder of zones; an absolute path
        return False
    return True
