"""One part of a table, done on an executor. Imports neither Spark nor gRPC."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RewriteFailure:
    """An error of the work. A task returns it and does not raise it: it would come as a stack trace
    of two languages, and Spark would try again in vain."""

    error: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteTask:
    """A `Task`; there is one.

    ``environment``: the driver's variables for the storage, where the executor has none.
    """

    work: Callable[[Any], Any]
    part: Any
    environment: Mapping[str, str] = field(repr=False)

    def __call__(self, number: int) -> Iterator[Any]:
        del number
        for name, value in self.environment.items():
            os.environ.setdefault(name, value)
        try:
            yield self.work(self.part)
        except ImportError:
            raise  # by its words the driver knows that the executors lack something
        except Exception as error:
            if not _is_sendable(error):
                raise
            yield RewriteFailure(error)


def _is_sendable(error: Exception) -> bool:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever its class does
        return False
    return True
