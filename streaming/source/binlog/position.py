"""A place in a binlog as one 64-bit integer: the file's number, and the offset in it.

A file's name ends in its number (``mysql-bin.000042``); the server counts it up with each file. An
offset may be beyond 4 GiB, where a transaction is: events tell only 32 bits of it.

After a failover the log is another server's, whose files have numbers of their own. They are
*lifted* there, above all those of the server before: so positions rise. A log's identity says which
server's it is, and by how much its numbers are lifted."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """The identity of a server's log. As text ``server``, or ``server+lift``."""

    server: str
    lift: int = 0

    def __str__(self) -> str:
        return f"{self.server}+{self.lift}" if self.lift else self.server

    @classmethod
    def parse(cls, text: str) -> LogIdentity:
        server, plus, lift = text.rpartition("+")
        return cls(server, int(lift)) if plus and lift.isdecimal() else cls(text)


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files of a server's log: ``base`` is what the names of all begin with."""

    base: str = "binlog"
    lift: int = 0

    def name(self, number: int) -> str:
        return file_name(self.base, number - self.lift)

    def number(self, name: str) -> int:
        """Raises ValueError."""
        return file_number(name) + self.lift

    def place(self, position: int) -> str:
        number, offset = BinlogPosition.of(position)
        if number <= self.lift:
            return f"file {number} position {offset} of an earlier server"
        return f"{self.name(number)} position {offset}"


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
