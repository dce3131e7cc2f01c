"""The form of a table: its columns behind the table's own, and that it stays what it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from conf.settings import TableRule
from coordination.errors import ConfigError, TidelakeError
from coordination.model import Ts
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.merge_on_write.lifecycle.create import create
from sinks.spark.merge_engine import SparkEngine
from sinks.target.engine_port import OP_COLUMN, Applied, Skipped, TableWrite, Target
from sinks.target.table_properties import DdlIdentity
from sinks.target.target_table import inspect
from sinks.target.write_mode import ROW_DELETED, ROW_OP, ROW_TS, UPSERT, WriteMode
from sinks.types.table_schema import TableSchema
from tests.services.delta_rows import read_rows
from tests.sinks.merge_on_write import orders
from tests.sinks.merge_on_write.event_logs import ORIGIN
from tests.sinks.merge_on_write.kinds_of_ddl import table_ddl
from tests.sinks.merge_on_write.test_change_log import altered

EXTRA = WriteMode(extra_columns=(ROW_TS, ROW_OP))
SOFT = WriteMode(extra_columns=(ROW_TS, ROW_OP), soft_delete=True)
FORMS = [UPSERT, WriteMode(mode="append"), EXTRA, WriteMode(soft_delete=True), SOFT]
FORMS.append(WriteMode(mode="history"))


@pytest.fixture
def target(tmp_path: Path) -> Target:
    made = replace(orders.target(str(tmp_path / "t")), form=EXTRA)
    create(made, properties=ORIGIN)
    return made


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_table_says_in_its_properties_which_form_it_has(tmp_path: Path, form: WriteMode) -> None:
    made = replace(orders.target(str(tmp_path / "t")), form=form)
    create(made, properties=ORIGIN)
    state = inspect(made.uri, {})
    assert state is not None
    assert state.form == form
    fields = DeltaTable(made.uri).schema().fields
    assert [field.name for field in fields] == ["id", "v", *form.columns]
    for other in FORMS:
        if other != form:
            with pytest.raises(ConfigError, match=r"was made with write-mode = .*: set it as it"):
                create(replace(made, form=other), properties=ORIGIN)


def test_the_order_of_extra_columns_in_the_file_means_nothing() -> None:
    rule = TableRule(matcher=("*.*",), extra_columns=("_tidelake_op", "_tidelake_commit_ts"))
    assert WriteMode.of_rule(rule) == EXTRA


def test_a_column_with_a_name_of_the_form_is_refused(target: Target) -> None:
    engine = MergeOnWriteEngine({}, keeps_up=False)
    with pytest.raises(TidelakeError, match="column _Tidelake_OP has the name of a column that wr"):
        engine.alter(altered(target, "RENAME COLUMN v TO _Tidelake_OP"))
    engine.close()


def test_extra_columns_stay_where_the_shape_changes(target: Target) -> None:
    engine = MergeOnWriteEngine({}, keeps_up=False)
    changes = {"id": [1], "v": ["a"], ROW_TS: [7], ROW_OP: ["insert"], OP_COLUMN: ["U"]}
    plain = orders.write(target.uri, 40, {})
    engine.apply(replace(plain, target=target, changes=pa.table(changes)))
    for ts, clause in ((50, "ADD COLUMN n INT"), (60, "MODIFY COLUMN id VARCHAR(30)")):
        state = inspect(target.uri, {})
        assert state is not None
        assert state.schema is not None
        order = altered(replace(target, schema=state.schema), clause, ts)
        assert isinstance(engine.alter(order), Applied)
    assert read_rows(target.uri) == [{"id": "1", "v": "a", "n": None, ROW_TS: 7, ROW_OP: "insert"}]
    dropped = DdlIdentity(commit_ts=Ts(70), order=0, query="DROP TABLE …")
    engine.alter(table_ddl(target=target, ddl=dropped, on_drop="drop"))
    again = DdlIdentity(commit_ts=Ts(80), order=0, query="CREATE TABLE …")
    create(target, properties={**ORIGIN, "tidelake.ddl": again.to_json()})
    fields = DeltaTable(target.uri).schema().fields
    assert [field.name for field in fields] == ["id", "v", *EXTRA.columns]
    engine.close()


def soft(path: Path) -> Target:
    """Three rows, each in a file of its own, of which one is deleted."""
    made = replace(orders.target(str(path)), form=SOFT)
    create(made, properties=ORIGIN)
    engine = MergeOnWriteEngine({}, keeps_up=False)
    for id, op in ((1, "insert"), (2, "delete"), (3, "update")):
        engine.apply(soft_write(made, 10 * id, id, op))
    engine.close()
    return made


def soft_write(target: Target, ts: int, id: int, op: str) -> TableWrite:
    cells = {"id": [id], "v": ["a"], ROW_TS: [ts], ROW_OP: [op], ROW_DELETED: [op == "delete"]}
    plain = orders.write(target.uri, ts, {})
    return replace(plain, target=target, changes=pa.table({**cells, OP_COLUMN: ["U"]}))


def told(target: Target) -> dict[int, tuple[object, ...]]:
    rows = read_rows(target.uri)
    return {row["id"]: (row[ROW_TS], row[ROW_OP], row[ROW_DELETED]) for row in rows}


def test_a_deleted_row_stays_and_comes_to_life_again(tmp_path: Path) -> None:
    target, engine = soft(tmp_path / "t"), MergeOnWriteEngine({}, keeps_up=False)
    assert told(target)[2] == (20, "delete", True)
    engine.apply(soft_write(target, 40, 2, "insert"))
    assert told(target)[2] == (40, "insert", False)
    engine.close()


@pytest.mark.parametrize("races", [0, 2])
def test_truncate_marks_the_rows_that_are_not_deleted_yet(tmp_path: Path, races: int) -> None:
    """Once, whoever writes meanwhile: a commit of another comes between looking and writing."""
    target, engine = soft(tmp_path / "t"), MergeOnWriteEngine({}, keeps_up=False)
    other = MergeOnWriteEngine({}, keeps_up=False)
    left = list(range(races))

    def between() -> None:
        if left:
            other.apply(soft_write(target, 40 + left.pop(), 4, "insert"))

    ddl = DdlIdentity(commit_ts=Ts(50), order=0, query="TRUNCATE TABLE …")
    order = table_ddl(target=target, ddl=ddl, empties=True, before_commit=between)
    assert isinstance(engine.alter(order), Applied)
    assert isinstance(other.alter(order), Skipped)
    ended = (50, "delete", True)
    expected = {1: ended, 2: (20, "delete", True), 3: ended} | ({4: ended} if races else {})
    assert told(target) == expected
    assert isinstance(engine.apply(soft_write(target, 60, 1, "insert")), Applied)
    assert told(target) == {**expected, 1: (60, "insert", False)}
    named = {Path(path).name for path in DeltaTable(target.uri).file_uris()}
    written = {path.name for path in Path(target.uri).glob("*.parquet")}
    assert len(written - named) == 2 + bool(races)  # of a lost race nothing is left
    for each in (engine, other):
        each.close()


def test_to_go_on_without_a_key_is_no_part_of_what_a_table_was_made_as(tmp_path: Path) -> None:
    """It may be said later. Who has no key any more needs it, though."""
    by_all = WriteMode.of_rule(TableRule(matcher=("*.*",), key="all-columns"))
    assert by_all.all_columns
    assert (by_all, str(by_all)) == (UPSERT, "write-mode = 'upsert', key = 'all-columns'")
    made = orders.target(str(tmp_path / "t"))
    create(made, properties=ORIGIN)
    create(replace(made, form=by_all), properties=ORIGIN)
    keyless = replace(made.schema, key=())
    chosen = by_all.keyed(keyless)
    assert (chosen.key, chosen.key_is_row) == (("id", "v"), True)
    assert TableSchema.from_json(chosen.to_json()) == chosen
    assert by_all.keyed(chosen) == chosen
    assert by_all.keyed(made.schema) == made.schema
    assert UPSERT.keyed(chosen) == keyless
    UPSERT.refuse_without_key("shop.t", made.schema)
    by_all.refuse_without_key("shop.t", chosen)
    with pytest.raises(ConfigError, match="has no key and is upserted by all its columns"):
        UPSERT.refuse_without_key("shop.t", chosen)


def test_a_set_of_rows_is_no_table_of_counted_rows() -> None:
    by_all, counted = (
        WriteMode.of_rule(TableRule(matcher=("*.*",), key=key)) for key in ("all-columns", "rows")
    )
    keyless = replace(orders.target("t").schema, key=())
    assert counted.keyed(keyless).counts_rows
    assert not by_all.keyed(counted.keyed(keyless)).counts_rows
    assert TableSchema.from_json(counted.keyed(keyless).to_json()).counts_rows
    counted.refuse_without_key("shop.t", counted.keyed(keyless))
    for form, was, key in ((by_all, counted, "rows"), (counted, by_all, "all-columns")):
        with pytest.raises(ConfigError, match=f"without key = '{key}'"):
            form.refuse_without_key("shop.t", was.keyed(keyless))


def test_the_spark_engine_refuses_a_table_by_all_columns(tmp_path: Path) -> None:
    made = orders.target(str(tmp_path / "t"))
    by_all = replace(made, schema=replace(made.schema, key=()).by_all_columns())
    assert (made.is_plain, by_all.is_plain) == (True, False)
    write = replace(orders.write(made.uri, 40, {}), target=by_all)
    with pytest.raises(ConfigError, match="is written by merge-on-write alone"):
        SparkEngine({}).apply(write)


def test_the_spark_engine_refuses_them(target: Target) -> None:
    write = replace(orders.write(target.uri, 40, {}), target=target)
    with pytest.raises(ConfigError, match="is written by merge-on-write alone"):
        SparkEngine({}).apply(write)
