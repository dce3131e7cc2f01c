"""What the readers of columns share: the bytes, the character sets, and the faults they find."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from streaming.source.binlog.format.cells.layout import Mask
from streaming.source.binlog.format.charsets import Charsets
from streaming.source.binlog.format.events import Bytes, Offsets, words_of


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """``faults``: images with a value that cannot be read, and why. Such a value is NULL."""

    data: Bytes
    charsets: Charsets
    faults: list[tuple[Mask, str]] = field(default_factory=list)

    def fault(self, is_bad: Mask, is_null: Mask | None, message: str) -> Mask | None:
        """Notes the bad ones that are not NULL; the mask of NULLs with them."""
        if is_null is not None:
            is_bad = is_bad & ~is_null
        if not is_bad.any():
            return is_null
        self.faults.append((is_bad, message))
        return is_bad if is_null is None else is_bad | is_null

    def big_endian(self, at: Offsets, width: int) -> npt.NDArray[np.uint64]:
        """Up to 8 bytes as a number."""
        word = words_of(self.data, ">u8")[at].astype(np.uint64)
        return word >> np.uint64(8 * (8 - width)) if width < 8 else word
