"""The result of a task on an executor: blocks, or why it could not read. Imports neither Spark nor
gRPC."""

from __future__ import annotations

from dataclasses import dataclass

from streaming.protocols.contract import Block
from streaming.source.body_files import InFile


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFailure:
    """Why a task could not read to its end. A task returns it and does not raise: Spark would try a
    task that raised again, whether that helps or not, and would report it with a stack trace of two
    languages."""

    is_unreadable: bool  # the source could not be read; the driver asks it why
    reason: str


Result = Block | InFile | ReadFailure
