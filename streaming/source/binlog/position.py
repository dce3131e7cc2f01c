"""A place in a binlog as one 64-bit integer: the file's number, and the offset in it.

A file's name ends in its number (``mysql-bin.000042``); the server counts it up with each file. An
offset may be beyond 4 GiB, where a transaction is: events tell only 32 bits of it."""

from __future__ import annotations

from typing import Final, NamedTuple

FIRST_OFFSET: Final = 4  # of a file's first event, behind its magic number
OFFSET_BITS: Final = 40  # 1 TiB a file, 8 million files


class BinlogPosition(NamedTuple):
    number: int  # of the file
    offset: int

    def __int__(self) -> int:
        return self.number << OFFSET_BITS | self.offset

    @classmethod
    def of(cls, position: int) -> BinlogPosition:
        return cls(position >> OFFSET_BITS, position & ((1 << OFFSET_BITS) - 1))


def file_number(name: str) -> int:
    """The number at the end of a binlog file's name. Raises ValueError."""
    number = name.rpartition(".")[2]
    if not number.isdecimal():
        raise ValueError(f"{name} is no name of a binlog file")
    return int(number)


def file_name(base: str, number: int) -> str:
    """``base``: what the names of all files begin with, as ``mysql-bin``. Servers write at least
    six digits."""
    return f"{base}.{number:06d}"
