"""Dead letters are kept as they came, once each."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from coordination.errors import Fenced, TermRefused
from coordination.model import TableName
from sinks.control.dead_letters import SCHEMA, DeadLetters, LetterWriter
from sinks.control.upkeep import Upkeep

ORDERS = TableName("shop", "orders")


def letters(
    offsets: range | list[int],
    *,
    table: TableName | None = ORDERS,
    partition: int = 0,
    topic: str = "t",
    feed: str = "shop",
    identity: str = "id",
) -> pa.Table:
    records = [
        {
            "changefeed_id": feed,
            "part": f"{topic}/{partition}",
            "identity": identity,
            "position": offset,
            "value": b"\xff\x00" + str(offset).encode(),
            "schema_name": table.schema if table else None,
            "table_name": table.table if table else None,
            "commit_ts": offset * 10,
            "error_class": "CastFailed",
            "message": f"offset {offset}: Ünsinn",
        }
        for offset in offsets
    ]
    names = [name for name in SCHEMA.names if name != "created_at"]
    return pa.Table.from_pylist(records, schema=pa.schema([SCHEMA.field(n) for n in names]))


def stored(warehouse: Path) -> pa.Table:
    return DeltaTable(str(warehouse / "_tidelake" / "dead_letters")).to_pyarrow_table()


def test_nothing_is_created_for_nothing(tmp_path: Path) -> None:
    dead = DeadLetters(str(tmp_path))
    assert dead.merge(letters([])) == 0
    assert dead.counts("shop") == {}
    assert list(tmp_path.iterdir()) == []


def test_a_message_is_kept_with_its_bytes(tmp_path: Path) -> None:
    assert DeadLetters(str(tmp_path)).merge(letters([7])) == 1
    (row,) = stored(tmp_path).to_pylist()
    assert list(row) == SCHEMA.names
    assert row["value"] == b"\xff\x007"
    assert (row["position"], row["commit_ts"], row["message"]) == (7, 70, "offset 7: Ünsinn")
    assert row["created_at"].tzinfo is not None


def test_a_replay_adds_nothing_and_no_commit(tmp_path: Path) -> None:
    dead = DeadLetters(str(tmp_path))
    assert dead.merge(letters(range(10))) == 10
    before = DeltaTable(str(tmp_path / "_tidelake" / "dead_letters")).version()
    assert dead.merge(letters(range(10))) == 0
    assert DeadLetters(str(tmp_path)).merge(letters(range(3, 6))) == 0
    assert DeltaTable(str(tmp_path / "_tidelake" / "dead_letters")).version() == before
    assert dead.merge(letters(range(5, 15))) == 5
    assert sorted(stored(tmp_path)["position"].to_pylist()) == list(range(15))


def test_one_batch_may_hold_a_message_twice(tmp_path: Path) -> None:
    assert DeadLetters(str(tmp_path)).merge(letters([1, 2, 1, 2, 2])) == 2


def test_the_key_is_changefeed_topic_partition_and_offset(tmp_path: Path) -> None:
    dead = DeadLetters(str(tmp_path))
    variants = [{}, {"partition": 1}, {"topic": "u"}, {"feed": "crm"}]
    assert [dead.merge(letters([5], **variant)) for variant in variants] == [1, 1, 1, 1]
    assert [dead.merge(letters([5], **variant)) for variant in variants] == [0, 0, 0, 0]


def test_a_topic_that_was_made_again_has_other_messages_at_its_offsets(tmp_path: Path) -> None:
    dead = DeadLetters(str(tmp_path))
    assert dead.merge(letters(range(4))) == 4
    again = letters(range(1, 5), identity="another")
    assert dead.merge(again) == 4
    assert [dead.merge(each) for each in (again, letters(range(4)))] == [0, 0]
    assert dead.counts("shop") == {ORDERS: 8}


def test_columns_may_come_in_any_order_and_with_a_time(tmp_path: Path) -> None:
    rows = letters([1, 2])
    rows = rows.select(rows.column_names[::-1])
    assert DeadLetters(str(tmp_path)).merge(rows) == 2
    again = stored(tmp_path)
    assert DeadLetters(str(tmp_path)).merge(again) == 0


def test_counts_are_by_table_and_follow_every_merge(tmp_path: Path) -> None:
    dead, other = DeadLetters(str(tmp_path)), DeadLetters(str(tmp_path))
    dead.merge(letters(range(3)))
    assert dead.counts("shop") == {ORDERS: 3}
    other.merge(letters(range(10, 12), table=None))
    other.merge(letters(range(20, 21), feed="crm"))
    assert dead.counts("shop") == {ORDERS: 3, None: 2}
    assert dead.counts("crm") == {ORDERS: 1}
    assert dead.counts("nobody") == {}


def test_threads_that_merge_the_same_messages_add_each_once(tmp_path: Path) -> None:
    ready = threading.Barrier(4)

    def run(_: int) -> int:
        dead = DeadLetters(str(tmp_path))
        ready.wait()
        return sum(dead.merge(letters(range(n, n + 5))) for n in range(10))

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(run, range(4))) == 14
    assert sorted(stored(tmp_path)["position"].to_pylist()) == list(range(14))


def letter_writer(incarnation: int, term: int | None, check: Callable[[], None]) -> LetterWriter:
    return LetterWriter(changefeed_id="shop", incarnation=incarnation, term=term, check=check)


def test_who_is_overtaken_buries_nothing(tmp_path: Path) -> None:
    dead = DeadLetters(str(tmp_path))
    dead.claim("shop", 3, 1)
    assert len(stored(tmp_path)) == 0  # it is there from the first claim on
    zombie, its_capture = (letter_writer(1, term, lambda: None) for term in (3, None))
    assert dead.merge(letters([1]), zombie) == 1
    DeadLetters(str(tmp_path)).claim("shop", 4, 1)
    with pytest.raises(TermRefused, match="term 3 was overtaken by term 4"):
        dead.merge(letters([2]), zombie)
    assert dead.merge(letters([3]), its_capture) == 1  # it keeps its spans under the new owner
    DeadLetters(str(tmp_path)).claim("shop", 5, 2)
    with pytest.raises(TermRefused, match=r"incarnation 1 is over.*belongs to incarnation 2"):
        dead.merge(letters([4]), its_capture)
    with pytest.raises(TermRefused, match="term 4 was overtaken by term 5"):
        dead.claim("shop", 4, 1)
    assert dead.merge(letters([5], feed="crm"), letter_writer(2, None, lambda: None)) == 1
    assert sorted(stored(tmp_path)["position"].to_pylist()) == [1, 3, 5]


def test_trust_is_looked_at_right_before_the_commit(tmp_path: Path) -> None:
    def lapsed() -> None:
        raise Fenced("nothing may be written")

    with pytest.raises(Fenced):
        DeadLetters(str(tmp_path)).merge(letters([1]), letter_writer(1, None, lapsed))
    assert len(stored(tmp_path)) == 0


def test_upkeep_joins_files_and_loses_nothing(tmp_path: Path) -> None:
    dead = DeadLetters(str(tmp_path), upkeep=Upkeep(every_commits=10, retention=timedelta(0)))
    folder = tmp_path / "_tidelake" / "dead_letters"
    most_files = 0
    for offset in range(70):
        assert dead.merge(letters([offset])) == 1
        listed = len(list(folder.glob("*.parquet"))) + len(list((folder / "_delta_log").iterdir()))
        most_files = max(most_files, listed)
    assert most_files <= 60
    assert dead.counts("shop") == {ORDERS: 70}
    assert dead.merge(letters(range(70))) == 0
