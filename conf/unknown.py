"""The sentence about a name that nobody knows."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """``unknown parameter 'partion-num'; did you mean partition-num?``"""
    nearest = get_close_matches(name.rpartition(".")[2], list(known), n=1, cutoff=0.6)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"unknown {what} {name!r}{hint}"
