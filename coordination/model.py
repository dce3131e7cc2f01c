"""The nouns of Tidelake. The same word stands in code, logs, etcd keys and Delta columns.

capture     one running process that may replicate; it has a new ID after every reset
owner       the capture whose election key has the lowest create-revision
changefeed  one replication task: a source URI, a sink URI, a start-ts
span        the part of a table that is replicated as one; for now a whole table
commit-ts   the TSO of a transaction in TiDB: ``physical_ms << 18 | logical``
watermark   W: every row with commit-ts <= W has been sent
limit       L = W - 1 (or target-ts): what a batch brings every table to
checkpoint  everything at or below it is in the table
resolved-ts what the source has promised so far; checkpoint <= resolved-ts

"Since when": each of these numbers or IDs tells a holder or version from the next one.

word               tells apart                                  new with             ranks?
session            a capture: its lease, ID and a UUID (epoch)  a reset              no
processor epoch    an agent under one owner (a UUID)            agent, owner         no
changefeed epoch   a changefeed's runs                          resume, retry        yes, ever
election revision  leaders of one etcd (create-revision)        a won election       within etcd
launch             owners of a changefeed, for its agents       an owner takes it    yes
term               owners of a changefeed, for Delta            a claim              yes, ever
fence              writers of a span: ``term << 32 | n``        an assignment        yes, ever
worker ID          workers of a task (jobmaster/)               a creation           yes, ever
incarnation        a changefeed's contents                      a rewind             yes, ever
generation         tables of one name: 1, they share a log     nothing              no
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NewType, TypeVar

Partition = TypeVar("Partition")
Ts = NewType("Ts", int)
CaptureID = NewType("CaptureID", str)
ChangefeedID = NewType("ChangefeedID", str)
ProcessorEpoch = NewType("ProcessorEpoch", str)
Revision = NewType("Revision", int)
LeaseID = NewType("LeaseID", int)
TermNumber = NewType("TermNumber", int)
JobID = NewType("JobID", str)
TaskID = NewType("TaskID", str)
WorkerID = NewType("WorkerID", int)

NO_TS: Final = Ts(0)  # below every commit-ts
TSO_LOGICAL_BITS = 18
SEALED_TS = 2**63 - 1  # a txnVersion that no limit can exceed: seals an app ID (rule 4)
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def tso_time(ts: int) -> datetime:
    """The physical time of a TSO, in UTC, to the millisecond."""
    return _UNIX_EPOCH + timedelta(milliseconds=ts >> TSO_LOGICAL_BITS)


def time_tso(at: datetime) -> Ts:
    """The first TSO of a point in time (which must carry a zone)."""
    return Ts(((at - _UNIX_EPOCH) // timedelta(milliseconds=1)) << TSO_LOGICAL_BITS)


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A table's name in MySQL; ``str()`` gives it as progress, ledger and logs show it."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureInfo:
    """The facts that a capture registers in etcd; the JSON field names are TiCDC's."""

    id: CaptureID
    address: str
    version: str
    start_timestamp: int  # unix seconds
    # Not TiCDC's:
    is_draining: bool = False  # it gives its tables and its leadership away, and takes none
    is_reached: bool = False  # an owner's message has reached it, so it may have tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """A capture and the election that it won, with which it may claim a changefeed's next term in
    Delta."""

    capture_id: CaptureID
    epoch: ProcessorEpoch
    etcd_cluster_id: str
    election_revision: Revision  # create-revision of the election key


def fence_number(term: int, assignment: int = 0) -> int:
    """The number that orders writes: ``term << 32 | n``, n numbering a term's assignments."""
    return term << 32 | assignment


def lowest(offsets: Iterable[Mapping[Partition, int]]) -> dict[Partition, int]:
    """The least offset of each partition."""
    found: dict[Partition, int] = {}
    for each in offsets:
        for partition, offset in each.items():
            found[partition] = min(offset, found.get(partition, offset))
    return found
