"""All settings as one frozen tree: types, defaults, bounds and keys are stated here alone.

Names and values are TiCDC's wherever TiCDC has one: ``checkpoint_ts`` here is ``checkpoint-ts`` in
a file or on the command line. ``conf/load.py`` fills the tree from TOML, environment and arguments:
a field made by `setting` from the one key named there, the other fields from several keys. The
pydantic models of `conf/files/` are made of these fields, and check what a user gives.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Le

from conf.column_rules import ColumnMask, ColumnSelector
from conf.forms import is_address, is_id, is_time_zone
from conf.problems import require
from conf.route_rules import RouteRule
from conf.rows.event_filter import EventFilter
from conf.setting import Above0, NotNegative, Seconds, SecondsOrNone, setting
from conf.sources.source_uri import SourceSettings

ANY_LOCAL_PORT = "127.0.0.1:0"
MOST_RETENTION_H = 100 * 366 * 24
MOST_TTL_S = 9_000_000_000  # etcd's
# The table as it is; its change log; every version of its rows.
WriteModeName = Literal["upsert", "append", "history"]
ExtraColumn = Literal["_tidelake_commit_ts", "_tidelake_op"]  # of an upserted row's last change
TableKey = Literal["all-columns", "rows"]  # equal rows are one, or as many as they are


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRule:
    """One ``[[sink.tables]]``: how the tables that it matches are written."""

    matcher: tuple[str, ...] = setting("matcher", (), "the tables, as in `[filter] rules`")
    write_mode: WriteModeName = setting(
        "write-mode",
        "upsert",
        "the table as it is, its change log, or every version of its rows (docs/write-modes.md)",
    )
    soft_delete: bool = setting("soft-delete", False, "a deleted row stays, and is marked")
    extra_columns: tuple[ExtraColumn, ...] = setting(
        "extra-columns", (), "columns that describe an upserted row's last change"
    )
    key: TableKey | None = setting(
        "key", says="of tables without one: all columns, or each row as often as it is there"
    )

    @property
    def is_plain(self) -> bool:
        """Whether every engine can write the tables."""
        is_changed = self.extra_columns or self.soft_delete or self.key
        return self.write_mode == "upsert" and not is_changed

    def __post_init__(self) -> None:
        is_upserted, is_marked = self.write_mode == "upsert", self.extra_columns or self.soft_delete
        of, told = f"of upserted tables, and write-mode is {self.write_mode!r}", "sink.tables:"
        several = f"{told} extra-columns and soft-delete are {of}: leave them out"
        require(is_upserted or not is_marked, several)
        require(is_upserted or not self.key, f"{told} key = {self.key!r} is {of}: leave it out")
        require(
            self.key != "rows" or not is_marked,
            "sink.tables: key = 'rows' counts equal rows, and extra-columns and soft-delete tell "
            "them apart: give tables without a key a rule of their own, without them",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSink:
    """``delta:///path/to/warehouse`` or ``delta+s3://bucket/path``: where the tables are."""

    warehouse: str  # a local path or an object store URI, without a trailing slash
    tables: tuple[TableRule, ...] = ()  # the first that matches a table counts
    routes: tuple[RouteRule, ...] = ()
    column_selectors: tuple[ColumnSelector, ...] = ()
    column_masks: tuple[ColumnMask, ...] = ()
    mask_salt: str | None = None  # a reference
    apply_engine: Literal["auto", "merge-on-write", "spark"] = setting(
        "apply-engine",
        "auto",
        "which engine commits: `merge-on-write`, `spark`, or `auto`: merge-on-write for every "
        "table that it can write",
    )
    allow_unsafe_commits: bool = setting(
        "allow-unsafe-commits",
        False,
        "lets an engine commit to a store on which it may overwrite another writer's commit",
    )
    snapshot_retention_h: Annotated[int, Ge(1), Le(MOST_RETENTION_H)] = setting(
        "snapshot-retention-h",
        24,
        "hours for which a snapshot of the ledger can be read; a table that keeps less is made to, "
        "at a start",
    )
    storage_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        require(
            self.apply_engine != "spark" or all(rule.is_plain for rule in self.tables),
            "sink.tables: apply-engine is 'spark', which writes upserted tables by a key of their "
            "own, without extra columns and soft deletes; all else is written by merge-on-write "
            "alone",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterSettings:
    """``[filter]`` and ``case-sensitive``."""

    rules: tuple[str, ...] = setting(
        "rules", ("*.*",), "the tables to replicate; the last rule that matches a table decides"
    )
    event_filters: tuple[EventFilter, ...] = ()
    dml_filters: Literal["here", "ticdc"] = setting(
        "dml-filters",
        "here",
        "who asks what event filters say of rows (`ignore-event` and the conditions): `here`, or "
        "`ticdc` alone, whose own file has them (docs/configuration.md#conditions-on-values)",
    )
    case_sensitive: bool = setting(
        "case-sensitive", False, "whether the patterns of `[filter]` tell upper from lower case"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """How a capture proves that it is alive."""

    ttl_s: Annotated[int, Ge(2), Le(MOST_TTL_S)] = setting(
        "capture-session-ttl", 10, "seconds after which a dead capture is noticed"
    )
    safety_margin_s: float = setting(
        "session-safety-margin-s",
        2.0,
        "so long before its session would end a capture ceases to write",
    )
    answer_timeout_s: Seconds = setting(
        "answer-timeout-s",
        60.0,
        "seconds after which the coordination loop or Spark's JVM counts as hanging: then the "
        "capture's tables go to others",
    )
    stall_timeout_s: Seconds = setting(
        "stall-timeout-s",
        600.0,
        "the same for a read, a commit, a part of a rewrite, and the capture's end",
    )

    def __post_init__(self) -> None:
        require(
            0 < self.safety_margin_s < self.ttl_s,
            "session-safety-margin-s must lie between 0 and capture-session-ttl",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    """How much is read and applied at a time."""

    max_messages: Above0 = setting(
        "max-batch-messages",
        1_000_000,
        "the most messages of one read: in a large one many rows share a commit's cost",
    )
    first_messages: NotNegative = setting(
        "first-batch-messages",
        50_000,
        "the most messages of a start's first read, so that the first commit comes soon and the "
        "rate is known; 0: `max-batch-messages`",
    )
    apply_threads: Above0 = setting("apply-threads", 8, "so many tables are written side by side")
    min_commit_interval_s: SecondsOrNone = setting(
        "min-commit-interval-s",
        0.0,
        "the least time between two commits of a table; a larger one makes fewer versions",
    )
    key_index_memory_mib: Above0 = setting(
        "key-index-memory-mib",
        1024,
        "memory of a capture for the index of where each key's row is; with less, keys are read "
        "again from the files",
    )
    carry_warn_rows: NotNegative = setting(
        "carry-warn-rows",
        5_000_000,
        "a warning is logged where more rows wait for their watermark; reading goes on",
    )
    held_messages: NotNegative = setting(
        "held-messages",
        50_000_000,
        "while a table waits for an operator at a DDL that cannot be run, the others go on until "
        "so many messages lie in between; a restart reads all of them once more",
    )
    quiet_s: SecondsOrNone = setting(
        "quiet-s",
        10.0,
        "once all watermarks are at the target-ts, so many seconds without a message end the feed",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Changefeed:
    """One replication task, as the user described it."""

    id: str
    source: SourceSettings
    sink: DeltaSink
    start_ts: int = setting(
        "start-ts",
        0,
        "changes above it are applied. One more than a minute ahead of the clocks is refused "
        "(docs/operations.md#timestamps-ahead-of-the-clocks)",
    )
    target_ts: int | None = setting(
        "target-ts", says="the changefeed finishes there; 0: it has no target"
    )
    overwrite_checkpoint_ts: int | None = setting(
        "overwrite-checkpoint-ts",
        says="for `run`: go back to this TSO, and apply all above once more (docs/starts.md)",
    )
    filter: FilterSettings = FilterSettings()
    zero_date: Literal["null", "fail"] = setting(
        "zero-date",
        "null",
        "a date that Delta does not have (`0000-00-00`, `2021-02-31`, the year 0) becomes NULL, or "
        "with `fail` a dead letter (docs/types.md#dates-that-delta-does-not-have)",
    )
    on_error: Literal["dead-letter", "fail"] = setting(
        "on-error",
        "dead-letter",
        "a message that cannot be applied is a dead letter; with `fail` it stops the changefeed",
    )
    max_dead_letters: NotNegative | None = setting(
        "max-dead-letters",
        says="a table with more open dead letters than this is written no further, until they are "
        "replayed or resolved; the others go on",
    )
    on_unknown_column: Literal["dead-letter", "drop"] = setting(
        "on-unknown-column",
        "dead-letter",
        "a message with a column that its target lacks is a dead letter; with `drop` the other "
        "columns are written, and the rows counted",
    )
    on_no_key: Literal["refuse", "leave-out"] = setting(
        "on-no-key",
        "refuse",
        "a copy refuses tables without a key that no rule says how to write; `leave-out`: it goes "
        "on without them (docs/mysql.md#tables-without-a-key)",
    )
    integrity_check_level: Literal["none", "correctness"] = setting(
        "integrity-check-level",
        "none",
        "with `correctness`, a row whose checksum is not the one that TiCDC sends with it is a "
        "dead letter; also in `[integrity]` (docs/protocols.md#row-checksums)",
    )
    corruption_handle_level: Literal["warn", "error"] = setting(
        "corruption-handle-level",
        "warn",
        "with `error`, such a row stops the changefeed; also in `[integrity]`",
    )
    strict_types: bool = setting(
        "strict-types",
        False,
        "a table with a column of which the protocol's messages lose something (a line in the log "
        "names each) is refused (docs/protocols.md#columns-that-lose-something)",
    )
    on_add_default: Literal["rewrite", "null"] = setting(
        "on-add-default",
        "rewrite",
        "old rows show an added column's default; `null`: they stay as they are, and show NULL",
    )
    on_type_change: Literal["rewrite", "stop"] = setting(
        "on-type-change",
        "rewrite",
        "rows are written anew in the new type; `stop`: the table waits for an operator",
    )
    on_unknown_values: Literal["hold", "reload"] = setting(
        "on-unknown-values",
        "hold",
        "a DDL whose values nobody can know here holds its table; with `reload` it is "
        "loaded anew from its database (docs/mysql.md#loaded-anew-by-itself)",
    )
    reload_most_rows: NotNegative = setting(
        "reload-most-rows", 1_000_000, "a table with more rows is held all the same"
    )
    ddl_time_zone: str | None = setting(
        "ddl-time-zone",
        says="the `time_zone` of the TiDB sessions that run DDLs, such as `Asia/Shanghai` or "
        "`+08:00`; without it, that of the source URI. A zone that is set counts as known "
        "(docs/ddl.md#what-depends-on-the-session-that-ran-a-ddl)",
    )
    on_drop: Literal["keep", "drop"] = setting(
        "on-drop",
        "keep",
        "a dropped table's rows stay readable under another name; `drop`: they go",
    )
    # Not the path of the `schema-file`, since captures run on other machines.
    schema_text: str = setting("schema-text", "", "the text of the `schema-file`")

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
        require(
            self.ddl_time_zone is None or is_time_zone(self.ddl_time_zone),
            f"ddl-time-zone {self.ddl_time_zone!r}: not a zone such as Asia/Shanghai or +08:00",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdSettings:
    """The etcd that the captures of a cluster share: endpoints, or ``embedded`` (one machine)."""

    endpoints: tuple[str, ...] = ()
    embedded: bool = True
    cluster_id: str = setting("cluster-id", "default", "the cluster's name in etcd")
    ca: str | None = setting("etcd-ca", says="the file of the CA that signed etcd's certificate")
    cert: str | None = setting("etcd-cert", says="the file of this process's certificate for etcd")
    key: str | None = setting("etcd-key", says="the file of that certificate's key")
    user: str | None = setting("etcd-user", says="the user to log in to etcd as")
    password: str | None = setting("etcd-password", says="that user's password", is_secret=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportSettings:
    """Where a capture listens for others, and ``[security]``: TLS is used if a CA is given."""

    addr: str = setting("addr", "127.0.0.1:8300", "where it listens; port 0: any free one")
    advertise_addr: str | None = setting(
        "advertise-addr", says="where others reach it, if that is not `addr`"
    )
    ca_path: str | None = setting("ca-path", says="the file of the CA that signs captures")
    cert_path: str | None = setting("cert-path", says="the file of this capture's certificate")
    key_path: str | None = setting("key-path", says="the file of that certificate's key")
    mtls: bool = setting(  # TiCDC: false; but who may call a capture may drain it
        "mtls", True, "whether a caller must show a certificate of the CA"
    )
    cert_allowed_cn: tuple[str, ...] = setting(
        "cert-allowed-cn", (), "the certificate names of captures; none: any that the CA has signed"
    )
    operator_allowed_cn: tuple[str, ...] = setting(
        "operator-allowed-cn", (), "further certificate names, of operators, who only make requests"
    )

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
    log_format: Literal["text", "json"] = setting(
        "log-format", "text", "the form of log lines; `json`: an object a line"
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = setting(
        "log-level", "INFO", "the lowest level that is logged"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(CaptureSettings):
    """All that ``tidelake run`` needs."""

    changefeed: Changefeed
    transport: TransportSettings = TransportSettings(addr=ANY_LOCAL_PORT)
