"""The task that decodes slices of the binlog on an executor. Imports neither Spark nor gRPC."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from streaming.protocols.contract import Wanted
from streaming.source.binlog.format.blocks import Slice, row_blocks
from streaming.source.binlog.format.faults import Refused
from streaming.source.body_files import BodyFile
from streaming.source.task_results import ReadFailure, Result


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceTask:
    """A `Task`: number n decodes slice n.

    ``files``: where the bytes of each slice lie, whose own ``data`` is empty then; None: in the
    slice, where executors are elsewhere. ``folder``: for the bodies of blocks."""

    slices: Sequence[Slice]
    files: Sequence[str | None]
    part: str
    wanted: Wanted
    folder: str | None

    def __call__(self, number: int) -> Iterator[Result]:
        bodies = BodyFile(self.folder)
        try:
            slice_, file = self.slices[number], self.files[number]
            if file is not None:
                slice_ = replace(slice_, data=Path(file).read_bytes())
            yield from map(bodies.put, row_blocks(slice_, self.part, self.wanted))
        except Exception as error:  # noqa: BLE001  # raised again in the driver
            is_refused = isinstance(error, Refused)
            reason = str(error) if is_refused else f"{type(error).__name__}: {error}"
            yield ReadFailure(is_unreadable=is_refused, reason=reason)
        finally:
            bodies.close()
