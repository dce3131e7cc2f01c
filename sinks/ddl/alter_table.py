"""Reads the parts of an ALTER TABLE: the effects of each, and TiCDC's names for it."""

from __future__ import annotations

from collections.abc import Sequence

from coordination.model import TableName
from sinks.ddl.defaults import default_value
from sinks.ddl.definitions import is_constraint, place_of, read_column, read_index
from sinks.ddl.effects import (
    AddColumn,
    AddIndex,
    AddPartitions,
    Altered,
    AlterSpec,
    AlterTable,
    DropColumn,
    DropIndex,
    Effect,
    ExchangePartition,
    ModifyColumn,
    NoEffect,
    RenameColumn,
    RenameIndex,
    RenameTable,
    ReorganizePartitions,
    SetCharset,
    SetDefault,
    SetPartitioning,
    Statement,
    TruncatePartition,
    Unsupported,
)
from sinks.ddl.handle_key import PRIMARY
from sinks.ddl.partition_clauses import read_count, read_partitioning, read_partitions
from sinks.ddl.text.tokens import (
    Word,
    Words,
    named_charset,
    names_binary_charset,
    schema_of,
    split_by_comma,
)
from sinks.types.table_schema import Index

NOTHING = "it changes neither columns nor rows"
FROM_UNKNOWN = "it does not say from which database it takes the table"

Part = tuple[tuple[str, ...], tuple[AlterSpec | Effect, ...]]
"""A part's event types, and what it does; nothing: no effect."""

# Parts that change nothing here -> event type, by the first words of the part. The first match
# counts.
_NEUTRAL: dict[tuple[str, ...], str] = {
    ("ADD", "CHECK"): "modify constraint",
    ("ADD", "CONSTRAINT"): "modify constraint",  # a CHECK: keys were read before
    ("ADD", "STATS_EXTENDED"): "",
    ("DROP", "FOREIGN"): "drop foreign key",
    ("DROP", "CHECK"): "modify constraint",
    ("DROP", "STATS_EXTENDED"): "",
    ("ALTER", "INDEX"): "alter index visibility",
    ("ALTER", "CHECK"): "modify constraint",
    ("ALTER", "CONSTRAINT"): "modify constraint",
    ("REMOVE", "TTL"): "alter ttl remove",
    ("TTL",): "alter ttl info",
    ("TTL_ENABLE",): "alter ttl info",
    ("TTL_JOB_INTERVAL",): "alter ttl info",
    ("COMMENT",): "modify table comment",
    ("AUTO_INCREMENT",): "rebase auto id",
    ("FORCE", "AUTO_INCREMENT"): "rebase auto id",
    ("DEFAULT",): "modify table charset and collate",
    ("CHARACTER",): "modify table charset and collate",
    ("CHARSET",): "modify table charset and collate",
    ("COLLATE",): "modify table charset and collate",
    ("ENGINE",): "modify storage engine",
    **{(verb, "PERIOD", "FOR"): "" for verb in ("ADD", "DROP")},
    **{(verb, "PARTITION"): "" for verb in ("OPTIMIZE", "ANALYZE", "CHECK", "REPAIR")},
    ("ORDER", "BY"): "",
    ("UPGRADE", "PARTITIONING"): "",
}
_ROWS_ELSEWHERE = "it takes rows from or to another table or file, and the log does not have them"
_VERSIONING = (
    "with system versioning a table's earlier rows are rows of it too, and the log does not have "
    "those that come or go by this statement: load the table anew"
)
_MOVERS = ("CONVERT PARTITION", "CONVERT TABLE", "DISCARD TABLESPACE", "IMPORT TABLESPACE")
_UNSUPPORTED: dict[str, str] = {  # by the first words of a part
    **dict.fromkeys(("ADD SYSTEM", "DROP SYSTEM"), _VERSIONING),
    **dict.fromkeys(_MOVERS, _ROWS_ELSEWHERE),
}
# Parts that change partitions and keep all rows; what each does to their definitions.
_KEEP_ROWS: dict[tuple[str, ...], str] = {
    ("ADD", "PARTITION"): "add table partition",
    ("REORGANIZE", "PARTITION"): "reorganize table partition",
    ("REBUILD", "PARTITION"): "rebuild table partition",
    ("COALESCE", "PARTITION"): "coalesce table partition",
    ("LAST", "PARTITION"): "add table partition",
    ("MERGE", "FIRST", "PARTITION"): "reorganize table partition",
    ("SPLIT",): "split table partition",
    ("PARTITION", "BY"): "alter table partitioning",
    ("REMOVE", "PARTITIONING"): "remove table partitioning",
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
        *("AUTOEXTEND_SIZE", "DATA", "INSERT_METHOD", "STORAGE", "TABLESPACE", "TRANSACTIONAL"),
        *("PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "ENCRYPTED", "ENCRYPTION_KEY_ID"),
    )
)
_EVENTS: dict[str, tuple[str, ...]] = {  # by the first words of a part; also if it cannot be read
    "ADD": ("add column",),
    "DROP": ("drop column",),
    "DROP PARTITION": ("drop table partition",),
    "TRUNCATE PARTITION": ("truncate table partition",),
    "MODIFY": ("modify column",),
    "CHANGE": ("modify column",),
    "RENAME": ("rename table",),
    "ALTER": ("set default value", "modify default value"),
}
_OPTION_EVENT = "alert table option"  # TiCDC's spelling
_MANNER = ("ALGORITHM", "LOCK")  # how the statement is run, not what it does


def read_alter(specification: Sequence[Word], table: Altered) -> Statement:
    """Reads the words behind the table's name in an ALTER TABLE."""
    parts = [part for part in _parts(specification) if part[0].upper not in _MANNER]
    read = [_part(part, table) for part in parts]
    events = read[0][0] if len(read) == 1 else ("multi schema change",) if read else ()
    changes = tuple(each for _, found in read for each in found if isinstance(each, AlterSpec))
    others = [each for _, found in read for each in found if not isinstance(each, AlterSpec)]
    renamed = next((each for each in others if isinstance(each, RenameTable)), None)
    if changes:
        before = renamed.name if renamed else table.name
        others.insert(0, AlterTable(name=before, changes=changes))
    return Statement(
        effects=tuple(others) or (NoEffect(reason=NOTHING),), event_types=(*events, "alter table")
    )


def _parts(specification: Sequence[Word]) -> list[tuple[Word, ...]]:
    """The statement's parts, which commas separate. Behind DROP PARTITION and its like they
    separate names of partitions: such a part is the last one."""
    parts = split_by_comma(specification)
    for at, part in enumerate(parts):
        start = tuple(word.upper for word in part[:2])
        if start[1:] == ("PARTITION",) or start == ("PARTITION", "BY"):
            joined = [word for each in parts[at:] for word in (*each, Word("mark", ","))]
            return [*parts[:at], tuple(joined[:-1])]
    return parts


def _part(part: tuple[Word, ...], table: Altered) -> Part:
    """Reads one part. One that cannot be read still has event types, so that a filter can ignore
    it."""
    try:
        return _read_part(part, table)
    except ValueError as error:
        start = " ".join(word.upper for word in part[:2])
        events = _EVENTS.get(start, _EVENTS.get(part[0].upper, ()))
        return events, (Unsupported(reason=f"it cannot be read: {error}"),)


def _read_part(part: tuple[Word, ...], table: Altered) -> Part:
    words = Words(part)
    if why := _UNSUPPORTED.get(" ".join(word.upper for word in part[:2])):
        return _EVENTS.get(part[0].upper, ()), (Unsupported(reason=why),)
    found = _partitions(words, table) or _neutral(part)
    if found is not None:
        return found
    match words.take().upper:
        case "ADD":
            found = _add(words)
        case "DROP":
            found = _drop(words)
        case "RENAME":
            found = _rename(words, table)
        case "MODIFY" | "CHANGE" as verb:
            found = _EVENTS[verb], _modified(words, is_renamed=verb == "CHANGE")
        case "ALTER":
            found = _default(words)
        case "CONVERT":
            convert = SetCharset(
                binary=bool(names_binary_charset(part)), converts=True, charset=named_charset(part)
            )
            found = ("modify table charset and collate",), (convert,)
        case _:
            unknown = f"its part {part[0].text or '(…)'} is unknown here"
            found = (), (Unsupported(reason=unknown),)
    return found


def _partitions(words: Words, of: Altered) -> Part | None:
    if words.accept("DROP", "PARTITION"):
        words.accept("IF", "EXISTS")
        drop = TruncatePartition(name=of.name, partitions=_names(words), drops=True)
        return _EVENTS["DROP PARTITION"], (drop,)
    if words.accept("TRUNCATE", "PARTITION"):
        truncate = TruncatePartition(name=of.name, partitions=_names(words))
        return _EVENTS["TRUNCATE PARTITION"], (truncate,)
    if words.accept("FIRST", "PARTITION"):
        unnamed = Unsupported(reason="it removes partitions that it does not name")
        return _EVENTS["DROP PARTITION"], (unnamed,)
    if words.accept("EXCHANGE", "PARTITION"):
        partition = words.name()
        words.accept("WITH", "TABLE")
        schema, table = words.table_name()
        other = TableName(schema_of(schema, of.home), table)
        exchange = ExchangePartition(name=of.name, partition=partition, table=other)
        return ("exchange table partition",), (exchange,)
    part = words.rest()
    for start, event in _KEEP_ROWS.items():
        if words.accept(*start):
            return (event,), _redefined(start, words, part)
    return None


def _redefined(
    start: tuple[str, ...], words: Words, part: Sequence[Word]
) -> tuple[AlterSpec | Effect, ...]:
    """A definition that cannot be read makes the partitions unknown: no row is wrong by that."""
    change: AlterSpec | None = SetPartitioning(partitioning=None)
    try:
        match start[0]:
            case "ADD":
                change = _added(words)
            case "COALESCE":
                change = AddPartitions(count=-read_count(words))
            case "REORGANIZE":
                change = _reorganized(words)
            case "REBUILD":
                change = None
            case "PARTITION":
                change = SetPartitioning(partitioning=read_partitioning(part))
    except ValueError:
        pass
    return () if change is None else (change,)


def _added(words: Words) -> AddPartitions:
    words.accept("IF", "NOT", "EXISTS")
    if words.peek().kind == "group":
        return AddPartitions(partitions=read_partitions(words))
    return AddPartitions(count=read_count(words))


def _reorganized(words: Words) -> ReorganizePartitions | None:
    """None: without names, it deals the rows of HASH partitions out anew."""
    before, into = words.until("INTO")
    names = _names(Words(before)) if into else ()
    return ReorganizePartitions(names=names, into=read_partitions(Words(into))) if names else None


def _names(words: Words) -> tuple[str, ...]:
    """The partitions' names; empty for ALL."""
    if words.peek().upper == "ALL":
        return ()
    named = [Words(part) for part in split_by_comma(words.rest())]
    names = tuple(each.name() for each in named)
    for each in named:
        each.end()
    return names


def _neutral(part: tuple[Word, ...]) -> Part | None:
    """Reads table options and other parts that change nothing, except a character set, which may
    turn text into bytes. None for all other parts."""
    first, second = part[0].upper, part[1].upper if len(part) > 1 else ""
    if first == "ADD" and read_index(part[1:]) is not None:
        return None
    words = {word.upper for word in part}
    event = next((event for start, event in _NEUTRAL.items() if Words(part).accept(*start)), None)
    if first == "ADD" and "FOREIGN" in words:
        event = "add foreign key"
    elif event is None and (
        first in _NEUTRAL_OPTIONS
        or (first == "SET" and second in ("TIFLASH", "HYPO"))
        or (first == "PARTITION" and {"PLACEMENT", "ATTRIBUTES"} & words)
    ):
        event = _OPTION_EVENT
    if event is None:
        return None
    binary = names_binary_charset(part) if first not in ("ADD", "DROP") else None
    charset = named_charset(part)
    changes = (SetCharset(binary=binary, charset=charset),) if binary is not None else ()
    return (event,) if event else (), changes


def _add(words: Words) -> Part:
    index = read_index(words.rest())
    if index is not None:
        event = "add primary key" if index.kind == "primary" else "create index"
        return (event,), (_add_index(index, words.rest()),)
    words.accept("COLUMN")
    if_not_exists = words.accept("IF", "NOT", "EXISTS")
    group = words.peek().kind == "group"
    changes: list[AlterSpec] = []
    for part in split_by_comma(words.take().inner) if group else [words.rest()]:
        index = read_index(part)
        if index is not None:
            changes.append(_add_index(index, part))
        elif not is_constraint(part):
            read = read_column(part, binary=False)
            changes.append(
                AddColumn(
                    column=read.column,
                    place=place_of(part),
                    if_not_exists=if_not_exists,
                    has_charset=read.has_charset,
                )
            )
            changes += [AddIndex(index=read.index)] if read.index else []
    return _EVENTS["ADD"], tuple(changes)


def _add_index(index: Index, part: Sequence[Word]) -> AddIndex:
    return AddIndex(index=index, if_not_exists=any(word.upper == "EXISTS" for word in part))


def _drop(words: Words) -> Part:
    if words.accept("PRIMARY", "KEY"):
        return ("drop primary key",), (DropIndex(name=PRIMARY),)
    what = words.accept_any("INDEX", "KEY", "CONSTRAINT", "COLUMN")
    if_exists = words.accept("IF", "EXISTS")
    name = words.column_name()
    if what in ("INDEX", "KEY"):
        return ("drop index",), (DropIndex(name=name),)
    if what == "CONSTRAINT":  # it may also be a CHECK, which is no index
        return ("modify constraint",), (DropIndex(name=name),)
    return _EVENTS["DROP"], (DropColumn(name=name, if_exists=if_exists),)


def _rename(words: Words, table: Altered) -> Part:
    what = words.accept_any("COLUMN", "INDEX", "KEY")
    if not what:
        words.accept_any("TO", "AS", "=")
        return _EVENTS["RENAME"], (rename_table(table.written, words.table_name(), table.home),)
    before = words.column_name()
    words.accept("TO")
    after = words.column_name()
    if what == "COLUMN":
        return ("modify column", "rename column"), (RenameColumn(name=before, new_name=after),)
    return ("rename index",), (RenameIndex(name=before, new_name=after),)


def rename_table(
    old_name: TableName, new_name: tuple[str, str], schema: str
) -> RenameTable | Unsupported:
    """``schema``: of names that have none. A message has it of the new name alone, so ``old_name``
    must have its own, or be in the new one's."""
    if not old_name.schema and new_name[0]:
        return Unsupported(reason=FROM_UNKNOWN)
    return RenameTable(
        name=TableName(schema_of(old_name.schema, schema), old_name.table),
        new_name=TableName(schema_of(new_name[0], schema), new_name[1]),
    )


def _modified(words: Words, is_renamed: bool) -> tuple[AlterSpec, ...]:
    words.accept("COLUMN")
    if_exists = words.accept("IF", "EXISTS")
    old = words.column_name() if is_renamed else ""
    definition = words.rest()
    read = read_column(definition, binary=False)
    change = ModifyColumn(
        name=old or read.column.name,
        column=read.column,
        place=place_of(definition),
        if_exists=if_exists,
        has_charset=read.has_charset,
    )
    return (change, AddIndex(index=read.index)) if read.index else (change,)


def _default(words: Words) -> Part:
    """Reads SET DEFAULT and DROP DEFAULT of an ALTER COLUMN; all else is Unsupported."""
    words.accept("COLUMN")
    words.accept("IF", "EXISTS")
    name = words.column_name()
    if words.accept("DROP", "DEFAULT"):
        change = SetDefault(name=name, default=None)
    elif words.accept("SET", "DEFAULT"):
        default, is_expression = default_value(words.rest(), None)
        change = SetDefault(name=name, default=default, default_is_expression=is_expression)
    elif words.accept("SET") and words.accept_any("VISIBLE", "INVISIBLE"):
        return (), ()
    else:
        return (), (Unsupported(reason="its part ALTER is unknown here"),)
    return _EVENTS["ALTER"], (change,)
