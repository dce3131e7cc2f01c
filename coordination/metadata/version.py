"""The version of this Tidelake: all captures of a cluster have the same one."""

from __future__ import annotations

from importlib import metadata


def tidelake_version() -> str:
    """The version of the installed package; ``dev`` if it is run from a folder."""
    try:
        return metadata.version("tidelake")
    except metadata.PackageNotFoundError:
        return "dev"
