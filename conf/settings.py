"""Every setting of a run as one frozen tree; the defaults live here and nowhere else.

Names and values are TiCDC's wherever TiCDC has one: ``checkpoint_ts`` here is ``checkpoint-ts`` in
a file or on the command line. ``conf/load.py`` fills the tree from TOML, environment and arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

ID_PATTERN = re.compile(r"^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$")  # TiCDC's rule
ID_MAX_LENGTH = 128
ANY_LOCAL_PORT = "127.0.0.1:0"
ADDRESS_PATTERN = re.compile(r"^(\[[0-9a-fA-F:.]+\]|[^\[\]:/\s]+):[0-9]{1,5}$")


class SettingError(ValueError):
    """Settings that cannot be right; the message says which, and what would be. One line, however
    many: several are numbered. ``place`` is where all of them stand, with what parts it from them.
    """

    def __init__(self, *problems: str, place: str = "") -> None:
        self.problems = problems
        super().__init__(f"{place}{_one_line(problems)}")


def _one_line(problems: Sequence[str]) -> str:
    if len(problems) == 1:
        return problems[0]
    numbered = " ".join(f"({number}) {each}" for number, each in enumerate(problems, 1))
    return f"{len(problems)} settings are refused: {numbered}"


class Problems:
    """Collects what is refused, so that a user reads all of it at once."""

    def __init__(self) -> None:
        self.found: list[str] = []

    @contextmanager
    def noted(self, prefix: str = "") -> Iterator[None]:
        """Go on behind a refusal, which is kept."""
        try:
            yield
        except SettingError as error:
            self.found += [f"{prefix}{each}" for each in error.problems]

    def refuse(self, place: str = "") -> None:
        """Raise one SettingError for all, if there are any."""
        if self.found:
            raise SettingError(*dict.fromkeys(self.found), place=place)


def require(condition: bool, message: str) -> None:
    """Raise ``SettingError(message)`` unless the condition holds."""
    if not condition:
        raise SettingError(message)


def is_id(text: str) -> bool:
    """TiCDC's rule for the IDs of changefeeds and clusters."""
    return len(text) <= ID_MAX_LENGTH and ID_PATTERN.fullmatch(text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSecurity:
    """SASL and TLS of a Kafka source, by TiCDC's URI parameters."""

    tls: bool = False  # enable-tls
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    insecure_skip_verify: bool = False
    sasl_mechanism: str | None = None  # PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER
    sasl_user: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    oauth_client_id: str | None = None  # sasl-oauth-…
    oauth_client_secret: str | None = field(default=None, repr=False)  # in Base64, as TiCDC has it
    oauth_token_url: str | None = None
    oauth_scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSource:
    """``kafka://host:port,host:port/topic?protocol=canal-json&partition-num=3&…``."""

    brokers: tuple[str, ...]
    topic: str  # the default topic; where the user names several, `topics` has them all
    topics: tuple[str, ...]
    protocol: str
    # Of the default topic. None: what the broker says, as for every other topic, and as TiCDC does
    # for a topic that exists (3 is only what it makes a new one with).
    partition_num: int | None
    time_zone: str = "UTC"  # the TiCDC server's `tz`: what TIMESTAMP text is written in
    max_message_bytes: int | None = None  # TiCDC's limit; None: nothing was said
    security: KafkaSecurity = KafkaSecurity()
    # kafka-group-id, for brokers that let only some groups read; nothing is committed to it
    group_id: str = "tidelake"
    client_rack: str | None = None  # kafka-client-rack: reads from the replica that is near


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSink:
    """``delta:///path/to/warehouse`` or ``delta+s3://bucket/path``: where the tables are."""

    warehouse: str  # a local path or an object store URI, without a trailing slash
    apply_engine: Literal["auto", "merge-on-write", "spark"] = "auto"
    allow_unsafe_commits: bool = False
    storage_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """One ``[[filter.event-filters]]``: events of matching tables that are passed over."""

    matcher: tuple[str, ...]
    ignore_event: tuple[str, ...] = ()
    ignore_sql: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterSettings:
    """``[filter]`` and ``case-sensitive``."""

    rules: tuple[str, ...] = ("*.*",)
    event_filters: tuple[EventFilter, ...] = ()
    case_sensitive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """How a capture proves that it is alive."""

    ttl_s: int = 10  # capture-session-ttl: a dead capture is noticed after this long
    safety_margin_s: float = 2.0  # the lease is not trusted this long before it ends
    # No keep-alive is sent while something hangs: the coordination loop or Spark's JVM for longer
    # than the first, reading, applying or an end for longer than the second.
    answer_timeout_s: float = 60.0
    stall_timeout_s: float = 600.0

    def __post_init__(self) -> None:
        require(self.ttl_s >= 2, "capture-session-ttl must be 2 seconds or more")
        require(self.answer_timeout_s > 0, "answer-timeout-s must be positive")
        require(self.stall_timeout_s > 0, "stall-timeout-s must be positive")
        require(
            0 < self.safety_margin_s < self.ttl_s,
            "session safety margin must lie between 0 and capture-session-ttl",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    """How much is read and applied at a time."""

    max_messages: int = 1_000_000  # of one micro-batch: large batches share the cost of a commit
    # Of the first one of a large backlog: the first commit comes soon, and the rate is known.
    first_messages: int = 50_000
    apply_threads: int = 8  # tables applied side by side
    # Of one table; 0: as often as there is something. Fewer commits are fewer versions and files.
    min_commit_interval_s: float = 0.0
    key_index_memory_mib: int = 1024  # of all tables: where the live rows of each key are
    carry_warn_rows: int = 5_000_000  # rows read but not resolved: warned about, never bounded
    # W = target-ts everywhere and nothing came for so long: the feed has ended.
    quiet_s: float = 10.0

    def __post_init__(self) -> None:
        require(self.max_messages > 0, "max-batch-messages must be positive")
        require(self.apply_threads > 0, "apply-threads must be positive")
        require(self.key_index_memory_mib > 0, "key-index-memory-mib must be positive")
        require(self.min_commit_interval_s >= 0, "min-commit-interval-s must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changefeed:
    """One replication task, as the user described it."""

    id: str
    source: KafkaSource
    sink: DeltaSink
    start_ts: int = 0
    target_ts: int | None = None
    overwrite_checkpoint_ts: int | None = None
    filter: FilterSettings = FilterSettings()
    zero_date: Literal["null", "fail"] = "null"
    on_error: Literal["dead-letter", "fail"] = "dead-letter"
    # What becomes of a message with a column that its target lacks; dropped values are counted.
    on_unknown_column: Literal["dead-letter", "drop"] = "dead-letter"

    def __post_init__(self) -> None:
        require(
            is_id(self.id),
            f"changefeed-id {self.id!r}: letters and digits, joined by single hyphens, at most 128",
        )
        if self.target_ts is not None:
            require(
                self.target_ts > self.start_ts,
                f"target-ts {self.target_ts} must be above start-ts {self.start_ts}",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdSettings:
    """Where the captures meet: endpoints, or ``embedded`` (one machine only)."""

    endpoints: tuple[str, ...] = ()
    embedded: bool = True
    cluster_id: str = "default"
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportSettings:
    """Where a capture listens for the others, and ``[security]``: TLS as soon as there is a CA."""

    addr: str = "127.0.0.1:8300"  # port 0: any free one
    advertise_addr: str | None = None  # where the others find it; None: at addr
    ca_path: str | None = None
    cert_path: str | None = None
    key_path: str | None = None
    mtls: bool = True  # TiCDC: false; but who may call a capture may drain it
    cert_allowed_cn: tuple[str, ...] = ()  # of captures; (): all that the CA has signed
    operator_allowed_cn: tuple[str, ...] = ()  # beside those: they may call, and send no messages

    def __post_init__(self) -> None:
        for name, value in (("addr", self.addr), ("advertise-addr", self.advertise_addr)):
            require(
                value is None or ADDRESS_PATTERN.match(value) is not None,
                f"{name} {value!r}: expected host:port",
            )
        require(
            self.advertise_addr is not None or not self.addr.startswith(("0.0.0.0:", "[::]:")),
            f"addr {self.addr!r} is no place to be found at: advertise-addr must be given",
        )
        require(
            (self.cert_path is None) == (self.key_path is None),
            "cert-path and key-path go together: one of them is missing",
        )
        require(
            self.cert_path is None or self.ca_path is not None,
            "cert-path is given without ca-path: captures could not trust each other",
        )
        require(
            not self.cert_allowed_cn or (self.ca_path is not None and self.mtls),
            "cert-allowed-cn needs ca-path and mtls: without them nobody shows a certificate",
        )
        require(
            not self.operator_allowed_cn or bool(self.cert_allowed_cn),
            "operator-allowed-cn needs cert-allowed-cn, which says who is a capture",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything ``tidelake run`` needs."""

    changefeed: Changefeed
    etcd: EtcdSettings = EtcdSettings()
    session: SessionSettings = SessionSettings()
    batch: BatchSettings = BatchSettings()
    transport: TransportSettings = TransportSettings(addr=ANY_LOCAL_PORT)
    log_format: Literal["text", "json"] = "text"
    log_level: str = "INFO"
