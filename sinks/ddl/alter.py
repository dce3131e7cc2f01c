"""Which parts of an ALTER TABLE change a target table, and what TiCDC calls them."""

from __future__ import annotations

from collections.abc import Sequence

from sinks.ddl.definitions import can_be_key, read_index
from sinks.ddl.words import Word, Words, names_binary_charset, split_by_comma
from sinks.schema import Index, TableSchema

Outcome = tuple[tuple[str, ...], str]
"""Event types, and why the statement is not supported (empty: it changes nothing here)."""

COLUMNS = "it changes the table's columns"
KEY = "it changes the table's key"
RENAMES = "it renames a table"
_PARTITIONS = "it changes partitions, and with them perhaps rows"

# By the words that a part of the statement starts with; the first match counts.
_PARTS: dict[tuple[str, ...], Outcome] = {
    ("ADD", "CHECK"): (("modify constraint",), ""),
    ("ADD", "CONSTRAINT"): (("modify constraint",), ""),  # CHECK: keys were read before
    ("ADD", "STATS_EXTENDED"): ((), ""),
    ("ADD", "PARTITION"): (("add table partition",), _PARTITIONS),
    ("ADD",): (("add column",), COLUMNS),
    ("DROP", "PRIMARY"): (("drop primary key",), KEY),
    ("DROP", "FOREIGN"): (("drop foreign key",), ""),
    ("DROP", "CHECK"): (("modify constraint",), ""),
    ("DROP", "STATS_EXTENDED"): ((), ""),
    ("DROP", "PARTITION"): (("drop table partition",), "it removes rows"),
    ("DROP",): (("drop column",), COLUMNS),
    ("RENAME", "COLUMN"): (("modify column", "rename column"), COLUMNS),
    ("RENAME",): (("rename table",), RENAMES),
    ("MODIFY",): (("modify column",), COLUMNS),
    ("CHANGE",): (("modify column",), COLUMNS),
    ("ALTER", "INDEX"): (("alter index visibility",), ""),
    ("ALTER", "CHECK"): (("modify constraint",), ""),
    ("ALTER", "CONSTRAINT"): (("modify constraint",), ""),
    ("ALTER",): (("set default value", "modify default value"), "it changes a column's default"),
    ("TRUNCATE", "PARTITION"): (("truncate table partition",), "it removes rows"),
    ("EXCHANGE", "PARTITION"): (("exchange table partition",), "it exchanges rows"),
    ("REORGANIZE", "PARTITION"): (("reorganize table partition",), _PARTITIONS),
    ("REBUILD", "PARTITION"): (("rebuild table partition",), _PARTITIONS),
    ("COALESCE", "PARTITION"): (("coalesce table partition",), _PARTITIONS),
    ("SPLIT",): (("split table partition",), _PARTITIONS),
    ("PARTITION", "BY"): (("alter table partitioning",), _PARTITIONS),
    ("REMOVE", "PARTITIONING"): (("remove table partitioning",), _PARTITIONS),
    ("REMOVE", "TTL"): (("alter ttl remove",), ""),
    ("TTL",): (("alter ttl info",), ""),
    ("TTL_ENABLE",): (("alter ttl info",), ""),
    ("TTL_JOB_INTERVAL",): (("alter ttl info",), ""),
    ("COMMENT",): (("modify table comment",), ""),
    ("AUTO_INCREMENT",): (("rebase auto id",), ""),
    ("FORCE", "AUTO_INCREMENT"): (("rebase auto id",), ""),
    ("CONVERT", "TO"): (("modify table charset and collate",), ""),
    ("DEFAULT",): (("modify table charset and collate",), ""),
    ("CHARACTER",): (("modify table charset and collate",), ""),
    ("CHARSET",): (("modify table charset and collate",), ""),
    ("COLLATE",): (("modify table charset and collate",), ""),
    ("ENGINE",): (("modify storage engine",), ""),
}
_NEUTRAL_OPTIONS = frozenset(
    (
        *("ALGORITHM", "LOCK", "FORCE", "WITH", "WITHOUT", "ENABLE", "DISABLE", "CACHE", "NOCACHE"),
        *("ATTRIBUTES", "PLACEMENT", "AFFINITY", "TABLE_CHECKSUM", "CHECKSUM", "COMPRESSION"),
        *("AUTO_RANDOM_BASE", "AUTO_ID_CACHE", "SHARD_ROW_ID_BITS", "PRE_SPLIT_REGIONS"),
        *("ROW_FORMAT", "KEY_BLOCK_SIZE", "AVG_ROW_LENGTH", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS"),
        *("DELAY_KEY_WRITE", "ENCRYPTION", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"),
        *("STATS_PERSISTENT", "STATS_AUTO_RECALC", "STATS_SAMPLE_PAGES", "STATS_BUCKETS"),
        *("STATS_TOPN", "STATS_OPTIONS", "STATS_COL_CHOICE", "STATS_COL_LIST", "STATS_SAMPLE_RATE"),
    )
)
_OPTION_EVENT = ("alert table option",)  # TiCDC's spelling
_MANNER = ("ALGORITHM", "LOCK")  # how the statement is done, not what


def alter_table(specification: Sequence[Word], known: TableSchema | None) -> Outcome:
    """What stands behind ``ALTER TABLE name``; ``known`` is the target's schema."""
    parts = [part for part in split_by_comma(specification) if part[0].upper not in _MANNER]
    if not parts:
        return ("alter table",), ""
    if "PARTITION" in [word.upper for word in parts[0][:2]]:
        parts = parts[:1]  # its commas part partitions, not parts of the statement
    outcomes = [_part(part, known) for part in parts]
    reasons = list(dict.fromkeys(reason for _, reason in outcomes if reason))
    events = outcomes[0][0] if len(outcomes) == 1 else ("multi schema change",)
    return (*events, "alter table"), "; ".join(reasons)


def alter_database(specification: Sequence[Word]) -> Outcome:
    bytes_by_default = names_binary_charset(specification)
    reason = "the text columns of its new tables may hold bytes" if bytes_by_default else ""
    return ("modify schema charset and collate", "alter database"), reason


def create_index(index: Index | None, known: TableSchema | None) -> Outcome:
    """TiCDC's handle key without a primary key is the smallest NOT NULL unique index."""
    events = ("create index", "alter table")
    if index is None or index.kind != "unique" or known is None or known.key_index is None:
        return events, ""
    smaller = len(index.columns) < len(known.key) and can_be_key(index.columns, known)
    return events, KEY if smaller else ""


def drop_index(name: str, known: TableSchema | None) -> str:
    """Why an index may not go: it is the handle key."""
    ours = known.key_index if known is not None else None
    return KEY if name.lower() in ("primary", (ours or "primary").lower()) else ""


def _part(part: tuple[Word, ...], known: TableSchema | None) -> Outcome:
    by_index = _index_part(part, known)
    if by_index is not None:
        return by_index
    for start, (events, reason) in _PARTS.items():
        if Words(part).accept(*start):
            return events, reason or _bytes_reason(start, part)
    if _is_neutral(part):
        return _OPTION_EVENT, _bytes_reason((), part)
    return (), f"its part {part[0].text or '(…)'} is unknown here"


def _index_part(part: tuple[Word, ...], known: TableSchema | None) -> Outcome | None:
    verb, words = part[0].upper, Words(part[1:])
    if verb == "ADD":
        index = read_index(words.rest())
        if index is not None and index.kind == "primary":
            return ("add primary key",), KEY
        if index is None:
            foreign = any(word.upper == "FOREIGN" for word in part)
            return (("add foreign key",), "") if foreign else None
        return ("create index",), create_index(index, known)[1]
    what = words.accept_any("INDEX", "KEY", "CONSTRAINT")
    if not what or verb not in ("DROP", "RENAME"):
        return None
    words.accept("IF", "EXISTS")
    event = "modify constraint" if what == "CONSTRAINT" else f"{verb.lower()} index"
    return (event,), drop_index(words.name(), known)


def _is_neutral(part: Sequence[Word]) -> bool:
    first, second = part[0].upper, part[1].upper if len(part) > 1 else ""
    if first == "PARTITION":
        return bool({"PLACEMENT", "ATTRIBUTES"} & {word.upper for word in part})
    return first in _NEUTRAL_OPTIONS or (first == "SET" and second in ("TIFLASH", "HYPO"))


def _bytes_reason(start: tuple[str, ...], part: Sequence[Word]) -> str:
    """Text stays text in any character set but this one."""
    if start[:1] in (("ADD",), ("DROP",)) or not names_binary_charset(part):
        return ""
    return "CHARACTER SET binary makes bytes of text"
