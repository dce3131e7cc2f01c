"""``tidelake dead-letters replay``: letters are written to their tables after a mend.

The command writes by itself, whether anybody replicates the changefeed or not. It makes a commit of
the merge-on-write engine without an identity, since the table is beyond the letters already (rule
4). The writer of a table notes which letters a commit passes *before* that commit. So states that
are read after version V tell everything that V passed, and the compare-and-set of V + 1 shows that
no more has come: else the states are read again. For the same reason it changes nothing to write a
letter twice.

    follow the log to V ─► states: open ones ─► cast ─► note those of them that newer ones pass
      ▲                                                    └─► commit V + 1 ─► note `replayed`
      └────────────── another commit came first ◄──────────────────┘   └ died here: still open
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conf.column_rules import told_masks, told_selectors
from conf.route_rules import told_routes
from conf.rows.event_filter import EventFilter
from conf.settings import Changefeed, DeltaSink, FilterSettings, TableRule
from conf.sources.large_messages import LargeMessages
from conf.sources.recording_uri import RecordingSettings
from conf.sources.source_parameters import AT_LEAST_ONCE
from coordination.errors import TidelakeError
from coordination.failpoint import Failpoint, failpoint
from coordination.model import NO_TS, TableName, Ts
from coordination.secrets import revealed_options
from sinks.control.changefeeds import ChangefeedRow
from sinks.control.dead_letters import DeadLetters, LetterWriter
from sinks.control.letter_states import LETTER, OPEN, PASSED_NEW, PASSED_OLD
from sinks.control.letter_states import SCHEMA as STATES
from sinks.control.progress import DROPPED
from sinks.control.warehouse import ControlTables
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.log.physical_schema import NotForThisEngine
from sinks.target.engine_port import (
    Applied,
    TableAltered,
    TableBroughtBack,
    TableHeld,
    TableWrite,
    Target,
)
from sinks.target.target_table import inspect
from streaming.apply.changes import changes
from streaming.apply.letters.letter_rows import LetterRows, letter_rows
from streaming.apply.letters.open_letters import LetterKeys, Met, OpenLetters
from streaming.apply.letters.row_bytes import LARGE, whole_row_decoder
from streaming.apply.rows_to_apply import Mask, Piece
from streaming.apply.table_task import TableTask, change_rules
from streaming.apply.values.ignored_rows import ignored_positions
from streaming.changefeed.replicated_table import ReplicatedTable
from streaming.changefeed.routes import changefeed_routes
from streaming.changefeed.schema_file import definitions_of
from streaming.changefeed.table_registry import TableRegistry
from streaming.changefeed.target_forms import write_modes
from streaming.operations.letters import (
    Chosen,
    ShownRow,
    chosen,
    dead_letters_of,
    now_of,
    operator_name,
)
from streaming.operations.progress_report import changefeed_rows
from streaming.stream.schema_cache import PastSchemaCache

_Rule = TypeVar("_Rule")
LetterId = tuple[Any, ...]  # of LETTER
LARGE_ROWS = 20  # of claim-check storage, in one commit
NO_TABLE = "which table it is of cannot be read"
NO_KEY = (
    "no key of the table can be read in it, or it has several rows, so that nobody has watched "
    "whether newer changes of its row came: rewind to below it"
)
IGNORED = "an event filter ignores its event by the values of the row: resolve it"
NOT_ITS_ROW = (
    "its file in claim-check storage has another row than its message names: put the right file "
    "there, or resolve the letter"
)
OF_SHARDS = (
    "several upstream tables go into the target, and some had a DDL of the target later than "
    "others at its time: which columns its row had is not certain. Change the row upstream, which "
    "supersedes the letter, or resolve it"
)
REWIND = "`resume --overwrite-checkpoint-ts` (or `run --overwrite-checkpoint-ts`) to below it"


class NotReplayed(TidelakeError):
    """Why none of a table's letters can be."""


def replay_letters(sink: DeltaSink, which: Chosen) -> list[ShownRow]:
    """Try the open ones. Returns the letters as they are then; ``refusal`` says why a letter stays
    open."""
    letters = chosen(sink, replace(which, state=OPEN))
    wanted: dict[tuple[str, TableName | None], dict[LetterId, bool]] = {}
    for each in letters.to_pylist():
        schema, table = each["schema_name"], each["table_name"]
        name = None if schema is None or table is None else TableName(schema, table)
        is_large = each["error_class"] == LARGE
        wanted.setdefault((each["changefeed_id"], name), {})[_id(each)] = is_large
    rows = {row.changefeed_id: row for row in changefeed_rows(sink, which.changefeed_id)}
    dead_letters = dead_letters_of(sink)
    with closing(MergeOnWriteEngine(_options(sink), keeps_up=False)) as engine:
        for (changefeed_id, name), ids in wanted.items():
            refused = dict.fromkeys(ids, NO_TABLE)
            if name is not None:
                try:
                    table = TableReplay(engine, dead_letters, sink, rows[changefeed_id], name)
                    refused = {
                        n: why for some in _rounds(ids) for n, why in table.run(some).items()
                    }
                except (NotForThisEngine, TableHeld, TableBroughtBack, TidelakeError) as error:
                    refused = dict.fromkeys(ids, str(error))
            _note_refused(dead_letters, refused)
    return now_of(dead_letters, which.changefeed_id, letters)


def _rounds(letters: Mapping[LetterId, bool]) -> list[set[LetterId]]:
    """Letters that are tried in one commit. The rows of large ones are in memory then, so there are
    few of these."""
    large = [each for each, is_large in letters.items() if is_large]
    others = letters.keys() - set(large)
    rounds = [set(large[n : n + LARGE_ROWS]) for n in range(0, len(large), LARGE_ROWS)]
    return [others, *rounds] if others else rounds


def _options(sink: DeltaSink) -> Mapping[str, str]:
    return revealed_options(sink.storage_options)


def _id(letter: Mapping[str, Any]) -> LetterId:
    return tuple(letter[name] for name in LETTER)


def _note_refused(dead_letters: DeadLetters, refused: Mapping[LetterId, str]) -> None:
    rows = [
        {**dict(zip(LETTER, each, strict=True)), "state": OPEN, "refusal": why}
        for each, why in refused.items()
    ]
    if rows:
        schema = pa.schema([STATES.field(name) for name in rows[0]])
        dead_letters.states.change(pa.Table.from_pylist(rows, schema), by=operator_name())


class TableReplay:
    """The replay of one table. Raises NotReplayed for a table that takes none."""

    def __init__(
        self,
        engine: MergeOnWriteEngine,
        dead_letters: DeadLetters,
        sink: DeltaSink,
        row: ChangefeedRow,
        name: TableName,
    ) -> None:
        changefeed = told_settings(sink, row)
        self._engine, self._dead_letters, self._row = engine, dead_letters, row
        self._by = LetterWriter(
            changefeed_id=row.changefeed_id,
            incarnation=row.incarnation,
            term=None,
            check=lambda: None,
        )
        self._operator = operator_name()
        self._rules = change_rules(changefeed)
        self._routes = changefeed_routes(changefeed)
        self._span, self._target = _opened(changefeed, row, name)
        source = changefeed.source
        assert isinstance(source, RecordingSettings), "told_settings makes them"
        options = changefeed.sink.storage_options
        self._decode = whole_row_decoder(source.protocol, source.large, options)
        tables = ControlTables.of(sink)
        older = PastSchemaCache(
            changefeed, lambda of: tables.schemas.of_table(row.changefeed_id, of)
        )
        self._task = TableTask(
            name=name,
            schema=self._target.schema,
            checkpoint=NO_TS,
            ignored_events=frozenset(),
            form=self._target.form,
            older=older.all_of(self._span),
            tells_last=True,
        )
        state = inspect(self._target.uri, _options(sink))
        self._late_until = Ts(0) if state is None else state.rekeyed_ts
        self._refused: dict[LetterId, str] = {}
        self._noted: tuple[OpenLetters, LetterKeys, Met] | None = None

    def run(self, wanted: set[LetterId]) -> dict[LetterId, str]:
        """Returns the letters that stay open, and why. Rows are cast by the shape of their
        commit-ts. A row without a place in that shape is cast by the later ones: the mend may be a
        DDL."""
        for later in range(len(self._task.older) + 1):
            self._write(wanted, self._task.by_later_shapes(later))
            if not self._refused:
                break
        return self._refused

    def _write(self, wanted: set[LetterId], task: TableTask) -> None:
        target, reached = self._target, self._span.checkpoint
        write = TableWrite(
            target=target,
            checkpoint=NO_TS,
            limit=reached,
            changes=pa.table({}),
            user_metadata=json.dumps({"replay": "dead letters", "by": self._operator}),
            before_commit=lambda: failpoint(Failpoint.AFTER_FENCE_CHECK),
            last=self._span.last,
        )
        try:
            done = self._engine.replay(write, lambda: self._changes(wanted, task))
        except TableAltered as altered:
            raise NotReplayed(f"{altered}: give the command again") from altered
        if isinstance(done, Applied) and self._noted is not None:
            failpoint(Failpoint.AFTER_APPLY_ONE)
            letters, keys, met = self._noted
            letters.note_brought(keys, met, self._operator)

    def _changes(self, wanted: set[LetterId], task: TableTask) -> pa.Table | None:
        """The changes that can be written now, on the version that the engine has read."""
        parts = list(self._dead_letters.open_of(self._by.changefeed_id, self._task.name))
        self._refused, self._noted = {}, None
        if not parts:
            return None
        shapes = self._task.older
        letters = OpenLetters(
            self._dead_letters, self._by, self._rules, lambda _: shapes, self._routes
        )
        keys = letters.read(self._task, parts)
        table = pa.concat_tables(parts)
        all_ids = [_id(each) for each in table.select(list(LETTER)).to_pylist()]
        is_wanted = pa.array([each in wanted for each in all_ids], pa.bool_())
        rows = self._rows(pc.if_else(is_wanted, table["value"], None), table["commit_ts"])
        others = rows.others | _not_theirs(keys, letters.read(self._task, [table], rows))
        task = replace(
            task, filters=self._routes.filter.row_filters({each.upstream for each in rows.blocks})
        )
        reached = self._span.checkpoint
        for number in ignored_positions(task, rows.blocks, reached, self._rules):
            others.setdefault(number, IGNORED)
        ids = {number: each for number, each in enumerate(all_ids) if each in wanted}
        barred = table["barred"].to_pylist()
        known_ts = keys.commit_ts()
        why = {n: barred[n] or others.get(n) or self._why(known_ts.get(n)) for n in ids}
        able = np.array([n in ids and why[n] is None for n in range(len(table))], np.bool_)
        passed = _passed(able, table["passed"].to_pylist())
        found = changes(task, rows.only(able), reached, self._rules, passed)
        for error in found.errors.to_pylist():
            if able[error["position"]]:
                why[error["position"]] = error["message"]
        self._refused = {ids[n]: text for n, text in why.items() if text is not None}
        if not found.rows.num_rows or found.last is None:
            return None
        places = keys.letters
        positions = np.array([letter.position for letter in places], np.int64)
        indexes = np.array([letter.index for letter in places], np.int32)
        met = keys.meet(found.last.at(positions, indexes))
        letters.note_passed(keys, met, self._operator)
        self._noted = letters, keys, met
        return found.rows

    def _rows(self, values: pa.ChunkedArray, commit_ts: pa.ChunkedArray) -> LetterRows:
        """The letters with their rows from claim-check storage, where they are there by now."""
        try:
            numbers = commit_ts if self._rules.is_numbered else None
            return letter_rows(values, self._task.name, self._decode, self._routes, numbers)
        except OSError as error:
            raise NotReplayed(
                f"the claim-check storage cannot be read: {error}. Give the command again when it "
                "answers"
            ) from error

    def _why(self, commit_ts: int | None) -> str | None:
        """Why a letter of this commit-ts is not written; None: it can be."""
        if commit_ts is None:
            return NO_KEY
        if commit_ts <= self._span.created_ts:
            return (
                f"its row is older than commit-ts {self._span.created_ts}, at which another table "
                f"came to this name: {REWIND}, or resolve it"
            )
        if commit_ts > self._span.checkpoint:
            return (
                f"the table is at commit-ts {self._span.checkpoint} and has not reached its row "
                "yet: give the command again later"
            )
        return OF_SHARDS if self._is_unsure(commit_ts) else None

    def _is_unsure(self, commit_ts: int) -> bool:
        """Whether an upstream table may have been behind the target then: what is stored tells who
        is behind now, and the last DDL at which anyone was."""
        shards, older = self._span.shards, self._task.older
        since = [ddls[0][0] for ddls in shards.behind.values() if ddls]
        was_altered = bool(older) and older[0].last_ts < commit_ts
        was_late = was_altered and commit_ts < self._late_until
        is_merged = any(self._routes.of(each).is_merging for each in shards)
        return is_merged and (was_late or (bool(since) and commit_ts >= min(since)))


def _not_theirs(cut: LetterKeys, whole: LetterKeys) -> dict[int, str]:
    """Why a letter is not written whose file in claim-check storage has another row than its
    message names: nobody has watched whether newer changes of that one came."""
    there = whole.told()
    return {
        number: NOT_ITS_ROW
        for number, told in cut.told().items()
        if there.get(number, told) != told
    }


def _passed(able: Mask, halves: Sequence[str | None]) -> Any:
    old = np.array([half == PASSED_OLD for half in halves], np.bool_)
    new = np.array([half == PASSED_NEW for half in halves], np.bool_)

    def of(piece: Piece) -> Mask:
        is_old = np.arange(len(piece.op)) >= piece.count
        at = piece.position
        found: Mask = ~able[at] | (is_old & old[at]) | (~is_old & new[at])
        return found

    return of


def _opened(
    changefeed: Changefeed, row: ChangefeedRow, name: TableName
) -> tuple[ReplicatedTable, Target]:
    """The table as it is, and how far. Nothing is written here: the owner has to seal a table of an
    older incarnation first."""
    progress = ControlTables.of(changefeed.sink).progress.read(row.changefeed_id).get(name)
    if progress is None or progress.state == DROPPED:
        raise NotReplayed(f"there is no table {name} any more: {REWIND}, or resolve it")
    if progress.incarnation != row.incarnation:
        raise NotReplayed("the changefeed has been rewound or reconfigured: start it first")
    forms = write_modes(changefeed)
    spans = TableRegistry(changefeed.sink, row, forms, definitions_of(changefeed))
    span = spans.opened(name, progress, NO_TS)
    if span.is_blocked:
        raise NotReplayed(span.error)
    if span.target is None:
        raise NotReplayed(f"there is no target of table {name}: its key or columns are not known")
    if (counts := span.target.schema.counts_rows) or span.target.form.mode != "upsert":
        raise NotReplayed(
            f"table {name} is written with {span.target.form}: events count in order, and nothing "
            f"is put in between. {'Load it anew' if counts else REWIND}: that closes the letter"
        )
    return span, span.target


def told_settings(sink: DeltaSink, row: ChangefeedRow) -> Changefeed:
    """The settings by which the changefeed's rows are cast and written, as its owner left them."""
    if row.row_rules is None:
        raise NotReplayed("the changefeed has not run yet: start it first")
    told = json.loads(row.row_rules)
    source = RecordingSettings(
        path="unused",
        protocol=told["protocol"],
        time_zone=told["time_zone"],
        large=LargeMessages.of_told(told.get("claims")),
        is_numbered=told.get("delivery") == AT_LEAST_ONCE,
    )
    return Changefeed(
        id=row.changefeed_id,
        source=source,
        sink=replace(
            sink,
            tables=tuple(_told_rules(TableRule, told["tables"])),
            routes=told_routes(told.get("routes", ())),
            column_selectors=told_selectors(told.get("column_selectors", ())),
            column_masks=told_masks(told.get("column_masks", ())),
            mask_salt=told.get("mask_salt"),
        ),
        filter=FilterSettings(
            case_sensitive=told["case_sensitive"],
            event_filters=tuple(_told_rules(EventFilter, told.get("event_filters", ()))),
        ),
        zero_date=told["zero_date"],
        ddl_time_zone=told["ddl_time_zone"],
        on_unknown_column=told["on_unknown_column"],
        on_add_default=told["on_add_default"],
        integrity_check_level=told.get("integrity_check_level", "none"),
    )


def _told_rules(kind: Callable[..., _Rule], rows: Iterable[Mapping[str, Any]]) -> Iterator[_Rule]:
    """Rules of their fields (``dataclasses.asdict``), read back from JSON."""
    for row in rows:
        yield kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in row.items()})
