"""Imports the program's own libraries, at no more than their cost.

pyarrow imports pandas with its first array if it finds it. That takes a process a quarter of a
second and some 40 MB, and nothing here uses it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class _NoPandas:
    """Says that pandas is not installed."""

    @staticmethod
    def find_spec(fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("no module named 'pandas' in a process of Tidelake's")


def do_without_pandas() -> None:
    """From here on. Changes nothing where it is imported already, as in a notebook's process."""
    if _NoPandas not in sys.meta_path:
        sys.meta_path.insert(0, _NoPandas)


@contextmanager
def importing() -> Iterator[None]:
    """`run` and `server` import their libraries inside. Imports leave no garbage, so the collector
    rests: it would look some hundred times meanwhile, and later again and again."""
    do_without_pandas()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
