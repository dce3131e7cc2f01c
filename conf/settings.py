"""All settings as one frozen tree; defaults, types and keys are defined here and nowhere else.

Names and values are TiCDC's wherever TiCDC has one: ``checkpoint_ts`` here is ``checkpoint-ts`` in
a file or on the command line. ``conf/load.py`` fills the tree from TOML, environment and arguments:
a field made by `setting` from the one key named there, the other fields from several keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

from conf.forms import is_address, is_id, is_time_zone
from conf.problems import require

ANY_LOCAL_PORT = "127.0.0.1:0"
MOST_RETENTION_H = 100 * 366 * 24
MOST_TTL_S = 9_000_000_000  # etcd's
# The table as it is; its change log; every version of its rows.
WriteModeName = Literal["upsert", "append", "history"]
ExtraColumn = Literal["_tidelake_commit_ts", "_tidelake_op"]  # of an upserted row's last change
TableKey = Literal["all-columns"]
_REPLACED_ENGINES = {
    "delta-rs": "its merge was replaced by merge-on-write, which auto (the default) takes: "
    "leave the key out"
}


def setting(
    name: str,
    default: Any = None,
    *,
    replaced: Mapping[str, str] | None = None,
    is_secret: bool = False,
) -> Any:
    """A field that is set by one key: of a file, as an environment variable or as an argument.

    ``replaced``: values that were accepted once, and what to do instead of giving them."""
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
class KafkaSettings:
    """``kafka://host:port,host:port/topic?protocol=canal-json&partition-num=3&…``."""

    brokers: tuple[str, ...]
    topic: str  # the default topic; `topics` has all, this one first
    topics: tuple[str, ...]
    protocol: str
    # Of the default topic. None: as many as the broker says, as for every other topic. TiCDC does
    # the same for a topic that exists (its default of 3 is only for a topic that it creates).
    partition_num: int | None
    time_zone: str = "UTC"  # the TiCDC server's `tz`: the zone of TIMESTAMP texts
    max_message_bytes: int | None = None  # TiCDC's limit; None: the URI does not say
    security: KafkaSecurity = KafkaSecurity()
    # For brokers that let only some consumer groups read; no offsets are committed to it.
    group_id: str = setting("kafka-group-id", "tidelake")
    client_rack: str | None = setting("kafka-client-rack")  # to read from a replica nearby

    @property
    def name(self) -> str:
        """What a changefeed without a name of its own is called after."""
        return self.topic

    @property
    def uri(self) -> str:
        """What is read, without the brokers and the login."""
        return f"kafka:///{self.topic}?protocol={self.protocol}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingSettings:
    """``file:///path/messages.jsonl?protocol=canal-json&…``: messages of a topic, one a line."""

    path: str  # absolute, on this machine; ends in .jsonl or .jsonl.gz
    protocol: str
    partition_num: int | None = None  # of the recorded topic: as in `KafkaSettings`
    time_zone: str = "UTC"

    @property
    def name(self) -> str:
        """The file's name without its endings."""
        return self.path.rpartition("/")[2].removesuffix(".gz").removesuffix(".jsonl")

    @property
    def uri(self) -> str:
        """As for Kafka."""
        return f"file://{quote(self.path)}?protocol={self.protocol}"


SourceSettings = KafkaSettings | RecordingSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRule:
    """One ``[[sink.tables]]``: how the tables that it matches are written."""

    matcher: tuple[str, ...] = setting("matcher", ())
    write_mode: WriteModeName = setting("write-mode", "upsert")  # noqa: RUF009 - it is immutable
    extra_columns: tuple[ExtraColumn, ...] = setting("extra-columns", ())
    soft_delete: bool = setting("soft-delete", False)  # a deleted row stays, and is marked
    # Of tables that have none.
    key: TableKey | None = setting("key")  # noqa: RUF009

    @property
    def is_plain(self) -> bool:
        """Whether every engine can write the tables."""
        is_changed = self.extra_columns or self.soft_delete or self.key
        return self.write_mode == "upsert" and not is_changed

    def __post_init__(self) -> None:
        require(
            self.write_mode == "upsert" or not (self.extra_columns or self.soft_delete),
            f"sink.tables: extra-columns and soft-delete are of upserted tables, and write-mode is "
            f"{self.write_mode!r}: leave them out",
        )
        require(
            self.write_mode == "upsert" or self.key is None,
            f"sink.tables: key = {self.key!r} is of upserted tables, and write-mode is "
            f"{self.write_mode!r}: leave it out",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSink:
    """``delta:///path/to/warehouse`` or ``delta+s3://bucket/path``: where the tables are."""

    warehouse: str  # a local path or an object store URI, without a trailing slash
    tables: tuple[TableRule, ...] = ()  # the first that matches a table counts
    apply_engine: Literal["auto", "merge-on-write", "spark"] = setting(
        "apply-engine", "auto", replaced=_REPLACED_ENGINES
    )
    allow_unsafe_commits: bool = setting("allow-unsafe-commits", False)
    # For so long each version that a snapshot names can be read.
    snapshot_retention_h: int = setting("snapshot-retention-h", 24)
    storage_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        require(
            self.apply_engine != "spark" or all(rule.is_plain for rule in self.tables),
            "sink.tables: apply-engine is 'spark', which writes upserted tables by a key of their "
            "own, without extra columns and soft deletes; all else is written by merge-on-write "
            "alone",
        )
        require(
            0 < self.snapshot_retention_h <= MOST_RETENTION_H,
            f"snapshot-retention-h must be 1 hour or more, and {MOST_RETENTION_H} at most",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """One ``[[filter.event-filters]]``: which events of the matching tables are ignored."""

    matcher: tuple[str, ...] = setting("matcher", ())
    ignore_event: tuple[str, ...] = setting("ignore-event", ())
    ignore_sql: tuple[str, ...] = setting("ignore-sql", ())


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterSettings:
    """``[filter]`` and ``case-sensitive``."""

    rules: tuple[str, ...] = setting("rules", ("*.*",))
    event_filters: tuple[EventFilter, ...] = ()
    case_sensitive: bool = setting("case-sensitive", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """How a capture proves that it is alive."""

    ttl_s: int = setting("capture-session-ttl", 10)  # a dead capture is noticed after this long
    # A capture stops trusting its lease this long before the lease ends.
    safety_margin_s: float = setting("session-safety-margin-s", 2.0)
    # A capture sends no keep-alive while something in it hangs: the coordination loop or Spark's
    # JVM for longer than `answer_timeout_s`; reading, applying or ending for longer than
    # `stall_timeout_s`.
    answer_timeout_s: float = setting("answer-timeout-s", 60.0)
    stall_timeout_s: float = setting("stall-timeout-s", 600.0)

    def __post_init__(self) -> None:
        require(
            2 <= self.ttl_s <= MOST_TTL_S,
            f"capture-session-ttl must be 2 seconds or more, and {MOST_TTL_S} at most",
        )
        require(self.answer_timeout_s > 0, "answer-timeout-s must be positive")
        require(self.stall_timeout_s > 0, "stall-timeout-s must be positive")
        require(
            0 < self.safety_margin_s < self.ttl_s,
            "session safety margin must lie between 0 and capture-session-ttl",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    """How much is read and applied at a time."""

    # At most so many messages per micro-batch. In a large batch many rows share a commit's cost.
    max_messages: int = setting("max-batch-messages", 1_000_000)
    # The same for the first micro-batch of a large backlog, so that the first commit comes soon
    # and the rate is known.
    first_messages: int = setting("first-batch-messages", 50_000)
    apply_threads: int = setting("apply-threads", 8)  # so many tables are applied at the same time
    # The least time between two commits of a table; 0: commit whenever there are changes. Fewer
    # commits make fewer versions and files.
    min_commit_interval_s: float = setting("min-commit-interval-s", 0.0)
    # For all tables together: the index of where each key's live row is.
    key_index_memory_mib: int = setting("key-index-memory-mib", 1024)
    # A warning is logged when more rows than this are read but not due; reading goes on.
    carry_warn_rows: int = setting("carry-warn-rows", 5_000_000)
    # While a table waits for an operator, the others go on until so many messages lie between it
    # and them: its rows are kept meanwhile, and a restart reads all that once more.
    held_messages: int = setting("held-messages", 50_000_000)
    # With W = target-ts in all partitions and no message for this long, the feed has ended.
    quiet_s: float = setting("quiet-s", 10.0)

    def __post_init__(self) -> None:
        require(self.max_messages > 0, "max-batch-messages must be positive")
        require(self.first_messages >= 0, "first-batch-messages must not be negative")
        require(self.apply_threads > 0, "apply-threads must be positive")
        require(self.key_index_memory_mib > 0, "key-index-memory-mib must be positive")
        require(self.held_messages >= 0, "held-messages must not be negative")
        require(self.min_commit_interval_s >= 0, "min-commit-interval-s must not be negative")
        require(self.carry_warn_rows >= 0, "carry-warn-rows must not be negative")
        require(self.quiet_s >= 0, "quiet-s must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changefeed:
    """One replication task, as the user described it."""

    id: str
    source: SourceSettings
    sink: DeltaSink
    start_ts: int = setting("start-ts", 0)
    target_ts: int | None = setting("target-ts")
    overwrite_checkpoint_ts: int | None = setting("overwrite-checkpoint-ts")
    filter: FilterSettings = FilterSettings()
    zero_date: Literal["null", "fail"] = setting("zero-date", "null")
    on_error: Literal["dead-letter", "fail"] = setting("on-error", "dead-letter")
    max_dead_letters: int | None = setting("max-dead-letters")  # a table with more is stopped
    # Of a column that the target lacks: its message, or the values are dropped (and counted).
    on_unknown_column: Literal["dead-letter", "drop"] = setting("on-unknown-column", "dead-letter")
    # A column with a default is added: old rows are rewritten with the default, or show NULL.
    # A column's type is changed: the table is rewritten, or the changefeed stops.
    on_add_default: Literal["rewrite", "null"] = setting("on-add-default", "rewrite")
    on_type_change: Literal["rewrite", "stop"] = setting("on-type-change", "rewrite")
    # The time zone of the sessions that run DDLs; None: taken to be that of the source.
    ddl_time_zone: str | None = setting("ddl-time-zone")
    # What becomes of the rows of a dropped table.
    on_drop: Literal["keep", "drop"] = setting("on-drop", "keep")
    # The text of the file that `schema-file` names: what tables were at the start-ts whose CREATE
    # TABLE is not read. The text, and not the path, since captures run on other machines.
    schema_text: str = setting("schema-text", "")

    def __post_init__(self) -> None:
        require(
            is_id(self.id),
            f"changefeed-id {self.id!r}: letters and digits, joined by single hyphens, at most 128",
        )
        require((self.max_dead_letters or 0) >= 0, "max-dead-letters must not be negative")
        if self.target_ts is not None:
            require(
                self.target_ts > self.start_ts,
                f"target-ts {self.target_ts} must be above start-ts {self.start_ts}",
            )
        require(
            self.ddl_time_zone is None or is_time_zone(self.ddl_time_zone),
            f"ddl-time-zone {self.ddl_time_zone!r}: not a zone such as Asia/Shanghai or +08:00",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdSettings:
    """The etcd that the captures of a cluster share: endpoints, or ``embedded`` (one machine)."""

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
    """Where a capture listens for others, and ``[security]``: TLS is used if a CA is given."""

    addr: str = setting("addr", "127.0.0.1:8300")  # port 0: any free one
    # The address at which other captures reach it; None: addr.
    advertise_addr: str | None = setting("advertise-addr")
    ca_path: str | None = setting("ca-path")
    cert_path: str | None = setting("cert-path")
    key_path: str | None = setting("key-path")
    mtls: bool = setting("mtls", True)  # TiCDC: false; but who may call a capture may drain it
    # The certificate names of captures; (): any certificate that the CA has signed.
    cert_allowed_cn: tuple[str, ...] = setting("cert-allowed-cn", ())
    # Further certificate names, of operators: they may make requests, but send no messages.
    operator_allowed_cn: tuple[str, ...] = setting("operator-allowed-cn", ())

    def __post_init__(self) -> None:
        for name, value in (("addr", self.addr), ("advertise-addr", self.advertise_addr)):
            require(value is None or is_address(value), f"{name} {value!r}: expected host:port")
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
    """The settings that every capture has: all that ``tidelake server`` needs."""

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
