"""The way out for a table that cannot go on by itself, for an error's sentence."""

from __future__ import annotations


def paused(name: object) -> str:
    """By `tidelake table pause`: nothing but its end lets the table go on."""
    return f"table {name} is paused: `tidelake table resume` lets it go on"


def load_anew(name: object = "", otherwise: str = "move it away and rewind") -> str:
    """Whoever says it need not know what the table's source is."""
    command = f"tidelake table reload {name}".rstrip()
    return f"load it anew: `{command}` where its source is a database, else {otherwise}"
