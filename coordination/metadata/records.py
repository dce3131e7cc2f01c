"""The records of a changefeed as etcd stores them: one JSON object each, with TiCDC's field names.

A record that is read and written back keeps the fields that this program does not know: those of a
newer TiCDC. Times stay the text that was read: Go writes nanoseconds, which Python would cut off.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from operator import index
from typing import Any, ClassVar, Final, TypeVar

from conf.masking import masked
from coordination.etcd.keys import NAMESPACE, ChangefeedName
from coordination.metadata.errors import BrokenValue, InvalidSchedule, NotLaunched
from coordination.model import NO_TS, CaptureID, ChangefeedID, Ts

START_EPOCH: Final = "start-epoch"
LASTS: Final = "lasts"
CONCERN: Final = "concern"
AWAITS: Final = "awaits"


class FeedState(StrEnum):
    NORMAL = "normal"
    WARNING = "warning"  # it runs, and a problem was reported
    PENDING = "pending"  # it waits after an error before it is tried again
    FAILED = "failed"
    STOPPED = "stopped"
    FINISHED = "finished"
    REMOVED = "removed"
    UNINITIALIZED = ""

    @property
    def is_running(self) -> bool:
        return self in (FeedState.NORMAL, FeedState.WARNING)


class AdminJobType(IntEnum):
    NONE = 0
    STOP = 1
    RESUME = 2
    REMOVE = 3
    FINISH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A JSON object: the known fields, in the order of the class, and in `unknown` the fields that
    are passed on as they were read. A class may say in ``JSON_NAMES`` how fields are named in JSON,
    and in ``READ`` how values of JSON become values of fields."""

    unknown: Mapping[str, Any] = field(default_factory=dict, compare=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningError(Record):
    """An error or a warning that a capture or the owner reports; `code` is TiCDC's error code, such
    as ``CDC:ErrGCTTLExceeded``."""

    time: str = ""
    addr: str = ""
    code: str = ""
    message: str = ""

    @property
    def lasts(self) -> bool:
        """Whether it is a warning whose end is reported too (`TaskPosition.concern`). TiCDC's have
        none."""
        return bool(self.unknown.get(LASTS))

    def lasting(self) -> RunningError:
        return replace(self, unknown={**self.unknown, LASTS: True})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangefeedInfo(Record):
    """A changefeed's definition (what its creator asked for) and the state that it is in."""

    JSON_NAMES: ClassVar[Mapping[str, str]] = {"id": "changefeed-id"}

    upstream_id: int = 0
    namespace: str = NAMESPACE
    id: ChangefeedID
    sink_uri: str = ""
    create_time: str = ""
    start_ts: Ts = NO_TS
    target_ts: Ts = NO_TS  # 0: no end
    admin_job_type: AdminJobType = AdminJobType.NONE
    sort_engine: str = ""
    sort_dir: str = ""
    config: Mapping[str, Any] | None = None
    state: FeedState = FeedState.NORMAL
    error: RunningError | None = None
    warning: RunningError | None = None
    creator_version: str = ""
    epoch: int = 0

    @property
    def name(self) -> ChangefeedName:
        return ChangefeedName(self.id, self.namespace)

    @property
    def start_epoch(self) -> int:
        """The epoch in which the start-ts was last set: by the creation, or by a resume that
        overwrites the checkpoint. 0 in an info that TiCDC wrote, which has no such field.
        """
        return int(self.unknown.get(START_EPOCH, 0))

    def started(self, epoch: int) -> ChangefeedInfo:
        """The same info, with `epoch` recorded as the one in which its start-ts was set."""
        return replace(self, unknown={**self.unknown, START_EPOCH: epoch})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangefeedStatus(Record):
    """How far a changefeed has come; the resolved-ts is not stored, on purpose."""

    checkpoint_ts: Ts = NO_TS
    min_table_barrier_ts: Ts = NO_TS
    admin_job_type: AdminJobType = AdminJobType.NONE

    @property
    def awaits(self) -> str:
        """A sentence that says what the changefeed awaits; TiCDC has no such field."""
        return str(self.unknown.get(AWAITS, ""))

    def awaiting(self, what: str) -> ChangefeedStatus:
        unknown = {name: each for name, each in self.unknown.items() if name != AWAITS}
        return replace(self, unknown={**unknown, AWAITS: what} if what else unknown)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPosition(Record):
    """What a capture reports about its part of a changefeed: only errors and warnings."""

    checkpoint_ts: Ts = NO_TS  # deprecated, as are the next two
    resolved_ts: Ts = NO_TS
    count: int = 0
    error: RunningError | None = None
    warning: RunningError | None = None

    def concern(self, epoch: int) -> RunningError | None:
        """The trouble that lasts on that capture now, in the run of that changefeed epoch. Unlike
        error and warning, which the owner takes, it stays until the capture takes it back. TiCDC
        has no such field."""
        found = self.unknown.get(CONCERN)
        if not isinstance(found, Mapping) or found.get("epoch") != epoch:
            return None
        return _from_json(RunningError, found["warning"])

    def with_concern(self, epoch: int, concern: RunningError | None) -> TaskPosition:
        unknown = {name: each for name, each in self.unknown.items() if name != CONCERN}
        if concern is not None:
            unknown[CONCERN] = {"epoch": epoch, "warning": _to_json(concern)}
        return replace(self, unknown=unknown)


NO_PROGRESS: Final = ChangefeedStatus()


class SchedState(StrEnum):
    """Whether a changefeed has an owner. Only a REMOVED one may be launched at another capture, so
    there is never a moment with two owners.

               launched                    stopped
    REMOVED ────────────► LAUNCHED ────────────────────► REMOVING
       ▲                     │  released: the owner ended,   │
       └─────────────────────┴── or its capture is dead ─────┘
    """

    INVALID = "Invalid"  # any text that this program does not know
    REMOVED = "Removed"
    LAUNCHED = "Launched"
    REMOVING = "Removing"

    @classmethod
    def _missing_(cls, value: object) -> SchedState:
        known = {each.lower(): each for each in cls}
        return known.get(str(value).lower(), cls.INVALID)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRow(Record):
    """Which capture owns a changefeed. TiCDC has no key for this; the JSON is Tidelake's own. The
    row is created and deleted in one transaction with the info.

    `creation_epoch` (the info's first epoch) tells apart changefeeds that were created one after
    another under one name, and `launches` tells apart the launches of one of them. So each launch
    differs from any other *by its value*, and a check of the value needs no revision.
    """

    owner: CaptureID | None = None
    owner_state: SchedState = SchedState.REMOVED
    creation_epoch: int = 0
    launches: int = 0

    def launched(self, owner: CaptureID) -> ScheduleRow:
        """The row with `owner` as its owner. Raises ``InvalidSchedule`` unless it is REMOVED."""
        self._check(SchedState.REMOVED, f"launched at {owner}")
        return replace(
            self, owner=owner, owner_state=SchedState.LAUNCHED, launches=self.launches + 1
        )

    def stopped(self) -> ScheduleRow:
        """The row that tells the owner to end. Raises ``InvalidSchedule`` unless it is LAUNCHED."""
        self._check(SchedState.LAUNCHED, "stopped")
        return replace(self, owner_state=SchedState.REMOVING)

    def released(self, owner: CaptureID) -> ScheduleRow:
        """The row after `owner` has ended. Raises ``NotLaunched`` if it does not own the
        changefeed."""
        if self.owner != owner or self.owner_state is SchedState.REMOVED:
            raise NotLaunched(f"the capture {owner} does not own it, but {self.owner}")
        return replace(self, owner=None, owner_state=SchedState.REMOVED)

    def _check(self, state: SchedState, what: str) -> None:
        if self.owner_state is not state:
            raise InvalidSchedule(
                f"a changefeed that is {self.owner_state} at {self.owner} cannot be {what}"
            )


NO_ROW: Final = ScheduleRow()  # for a changefeed that TiCDC's tools created, and nobody owned yet

R = TypeVar("R", bound=Record)


def dump(record: Record) -> bytes:
    """The record as JSON: TiCDC's field names in TiCDC's order, then the unknown fields."""
    return json.dumps(_to_json(record), separators=(",", ":"), ensure_ascii=False).encode()


def load(kind: type[R], value: bytes) -> R:
    """The record in a value from etcd; a missing field gets its default. Raises ``BrokenValue`` if
    the value is no such record."""
    try:
        found = json.loads(value)
    except ValueError as error:
        raise BrokenValue(f"not JSON: {error}: {_shown(value)}") from error
    try:
        return _from_json(kind, found)
    except (TypeError, ValueError, AttributeError) as error:
        raise BrokenValue(f"not a {kind.__name__}: {error}: {_shown(value)}") from error


def rfc3339(at: datetime) -> str:
    """The time as Go writes it, in UTC; `at` must carry a zone."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _shown(value: bytes) -> str:
    """The beginning of a value that cannot be read, for an error message. The value may be an info
    with a password in its sink URI, so it is decoded to text (in which passwords are found) and
    masked before it is cut."""
    return masked(value.decode(errors="replace"))[:200]


_NAMES: Final[dict[type[Any], Mapping[str, str]]] = {}  # a cache: each read and write needs them


def _json_names(kind: type[Record]) -> Mapping[str, str]:
    """Attribute name -> JSON name, in the order in which the fields are written."""
    if kind not in _NAMES:
        renamed: Mapping[str, str] = getattr(kind, "JSON_NAMES", {})
        names = (each.name for each in fields(kind) if each.name != "unknown")
        _NAMES[kind] = {name: renamed.get(name, name.replace("_", "-")) for name in names}
    return _NAMES[kind]


def _to_json(record: Record) -> dict[str, Any]:
    known = {
        json_name: _plain(getattr(record, name))
        for name, json_name in _json_names(type(record)).items()
    }
    return known | {name: each for name, each in record.unknown.items() if name not in known}


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return _to_json(value)
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def record_reader(kind: type[R]) -> Callable[[Any], R]:
    """A function for ``READ``: a JSON object becomes a record of that kind."""
    return lambda found: _from_json(kind, found)


def _from_json(kind: type[R], found: Mapping[str, Any]) -> R:
    names = _json_names(kind)
    read: Mapping[str, Callable[[Any], Any]] = {**_READ, **getattr(kind, "READ", {})}
    known = {
        name: read.get(name, _same)(found[json_name])
        for name, json_name in names.items()
        if found.get(json_name) is not None
    }
    unknown = {name: each for name, each in found.items() if name not in names.values()}
    return kind(unknown=unknown, **known)


def _same(value: Any) -> Any:
    return value


def _read_error(value: Any) -> RunningError:
    return _from_json(RunningError, value)


_WHOLE_NUMBERS: Final = (
    *("upstream_id", "start_ts", "target_ts", "epoch", "checkpoint_ts", "min_table_barrier_ts"),
    *("resolved_ts", "count", "creation_epoch", "launches"),
)
_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "state": FeedState,
    "error": _read_error,
    "warning": _read_error,
    "owner": CaptureID,
    "owner_state": SchedState,
    "admin_job_type": AdminJobType,
    **dict.fromkeys(_WHOLE_NUMBERS, index),
}
