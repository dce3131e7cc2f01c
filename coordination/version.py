"""Which Tidelake this is."""

from __future__ import annotations

from importlib import metadata


def tidelake_version() -> str:
    """Of the installed package; ``dev`` where it is run from a folder."""
    try:
        return metadata.version("tidelake")
    except metadata.PackageNotFoundError:
        return "dev"
