"""Messages that mean nothing, made of good ones: cut off, torn, not UTF-8, not JSON.

Every mutation is one that no parser may take for a row: a mutated copy changes nothing in the
target, it is a dead letter.
"""

from __future__ import annotations

import numpy as np


def garbage_of(message: bytes, rng: np.random.Generator) -> bytes:
    """One of five mutations, each equally likely."""
    place = int(rng.integers(1, len(message) - 1))
    match int(rng.integers(5)):
        case 0:  # cut off
            return message[:place]
        case 1:  # torn: its head is missing
            return message[place:]
        case 2:  # not UTF-8
            return message[:place] + b"\xff" + message[place:]
        case 3:  # no JSON: a list that is closed as an object
            return b"[" + message[1:]
        case _:  # no number
            return message.replace(b'"commitTs":', b'"commitTs":NaN', 1)
