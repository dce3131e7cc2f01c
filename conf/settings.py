"""Every setting as one frozen tree; defaults, types and keys live here and nowhere else.

Names and values are TiCDC's wherever TiCDC has one: ``checkpoint_ts`` here is ``checkpoint-ts`` in
a file or on the command line. ``conf/load.py`` fills the tree from TOML, environment and arguments:
a field that is a `setting` by its key, the others from several keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal

ID_PATTERN = re.compile(r"^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$")  # TiCDC's rule
ID_MAX_LENGTH = 128
ANY_LOCAL_PORT = "127.0.0.1:0"
ADDRESS_PATTERN = re.compile(r"^(\[[0-9a-fA-F:.]+\]|[^\[\]:/\s]+):[0-9]{1,5}$")
_REPLACED_ENGINES = {
    "delta-rs": "its merge was replaced by merge-on-write, which auto (the default) takes: "
    "leave the key out"
}


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


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """``unknown parameter 'partion-num'; did you mean partition-num?``"""
    nearest = get_close_matches(name.rpartition(".")[2], list(known), n=1, cutoff=0.6)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"unknown {what} {name!r}{hint}"


def is_id(text: str) -> bool:
    """TiCDC's rule for the IDs of changefeeds and clusters."""
    return len(text) <= ID_MAX_LENGTH and ID_PATTERN.fullmatch(text) is not None


def setting(
    name: str,
    default: Any = None,
    *,
    replaced: Mapping[str, str] | None = None,
    is_secret: bool = False,
) -> Any:
    """A field that one key of a file, variable or argument sets.

    ``replaced``: former values, and what to do instead."""
    metadata = {"key": name, "replaced": replaced or {}}
    return field(default=default, repr=not is_secret, metadata=metadata)


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
    # For brokers that let only some groups read; nothing is committed to it.
    group_id: str = setting("kafka-group-id", "tidelake")
    client_rack: str | None = setting("kafka-client-rack")  # reads from the replica that is near


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSink:
    """``delta:///path/to/warehouse`` or ``delta+s3://bucket/path``: where the tables are."""

    warehouse: str  # a local path or an object store URI, without a trailing slash
    apply_engine: Literal["auto", "merge-on-write", "spark"] = setting(
        "apply-engine", "auto", replaced=_REPLACED_ENGINES
    )
    allow_unsafe_commits: bool = setting("allow-unsafe-commits", False)
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

    ttl_s: int = setting("capture-session-ttl", 10)  # a dead capture is noticed after this long
    # The lease is not trusted this long before it ends.
    safety_margin_s: float = setting("session-safety-margin-s", 2.0)
    # No keep-alive is sent while something hangs: the coordination loop or Spark's JVM for longer
    # than the first, reading, applying or an end for longer than the second.
    answer_timeout_s: float = setting("answer-timeout-s", 60.0)
    stall_timeout_s: float = setting("stall-timeout-s", 600.0)

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

    # Of one micro-batch: large batches share the cost of a commit.
    max_messages: int = setting("max-batch-messages", 1_000_000)
    # Of the first one of a large backlog: the first commit comes soon, and the rate is known.
    first_messages: int = setting("first-batch-messages", 50_000)
    apply_threads: int = setting("apply-threads", 8)  # tables applied side by side
    # Of one table; 0: as often as there is something. Fewer commits are fewer versions and files.
    min_commit_interval_s: float = setting("min-commit-interval-s", 0.0)
    # Of all tables: where the live rows of each key are.
    key_index_memory_mib: int = setting("key-index-memory-mib", 1024)
    # Rows read but not resolved: warned about, never bounded.
    carry_warn_rows: int = setting("carry-warn-rows", 5_000_000)
    # W = target-ts everywhere and nothing came for so long: the feed has ended.
    quiet_s: float = setting("quiet-s", 10.0)

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
    start_ts: int = setting("start-ts", 0)
    target_ts: int | None = setting("target-ts")
    overwrite_checkpoint_ts: int | None = setting("overwrite-checkpoint-ts")
    filter: FilterSettings = FilterSettings()
    zero_date: Literal["null", "fail"] = setting("zero-date", "null")
    on_error: Literal["dead-letter", "fail"] = setting("on-error", "dead-letter")
    # What becomes of a message with a column that its target lacks; dropped values are counted.
    on_unknown_column: Literal["dead-letter", "drop"] = setting("on-unknown-column", "dead-letter")
    # What old rows show of an added column with a default, and what becomes of a changed type.
    on_add_default: Literal["rewrite", "null"] = setting("on-add-default", "rewrite")
    on_type_change: Literal["rewrite", "stop"] = setting("on-type-change", "rewrite")

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
    cluster_id: str = setting("cluster-id", "default")
    ca: str | None = setting("etcd-ca")
    cert: str | None = setting("etcd-cert")
    key: str | None = setting("etcd-key")
    user: str | None = setting("etcd-user")
    password: str | None = setting("etcd-password", is_secret=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportSettings:
    """Where a capture listens for the others, and ``[security]``: TLS as soon as there is a CA."""

    addr: str = setting("addr", "127.0.0.1:8300")  # port 0: any free one
    # Where the others find it; None: at addr.
    advertise_addr: str | None = setting("advertise-addr")
    ca_path: str | None = setting("ca-path")
    cert_path: str | None = setting("cert-path")
    key_path: str | None = setting("key-path")
    mtls: bool = setting("mtls", True)  # TiCDC: false; but who may call a capture may drain it
    # Of captures; (): all that the CA has signed.
    cert_allowed_cn: tuple[str, ...] = setting("cert-allowed-cn", ())
    # Beside those: they may call, and send no messages.
    operator_allowed_cn: tuple[str, ...] = setting("operator-allowed-cn", ())

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
class CaptureSettings:
    """What every capture is started with: all that ``tidelake server`` needs."""

    etcd: EtcdSettings = EtcdSettings()
    session: SessionSettings = SessionSettings()
    batch: BatchSettings = BatchSettings()
    transport: TransportSettings = TransportSettings()
    log_format: Literal["text", "json"] = setting("log-format", "text")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = setting("log-level", "INFO")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(CaptureSettings):
    """All that ``tidelake run`` needs."""

    changefeed: Changefeed
    transport: TransportSettings = TransportSettings(addr=ANY_LOCAL_PORT)
