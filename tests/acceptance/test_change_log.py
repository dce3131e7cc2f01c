"""Tables as change logs (write-mode append): every event once, whoever dies, as Spark reads it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from conf.settings import TableRule
from coordination.errors import ConfigError
from coordination.failpoint import Failpoint
from tests.acceptance.one_process import Lives, Sleep
from tests.acceptance.small_tables import (
    CREATE_KEYLESS,
    KEYLESS,
    A,
    B,
    MakeLives,
    made,
    marks,
    row,
    values,
)
from tests.shop.canal_json import Change, Ddl, Op, encode_change, encode_ddl
from tests.shop.feed import Message

LOGS = (TableRule(matcher=("shop.a", "shop.log"), write_mode="append"),)
Event = tuple[Any, ...]


def logs(new_lives: MakeLives) -> Lives:
    lives = new_lives()
    changefeed = lives.settings.changefeed
    sink = replace(changefeed.sink, tables=LOGS)
    lives.settings = replace(lives.settings, changefeed=replace(changefeed, sink=sink))
    return lives


class Feed:
    """Changes of a table with a key, of one without, and of one that is upserted; what is said of
    them in the logs."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.of_a: list[Event] = []
        self.of_log: list[Event] = []
        self.rows: dict[int, str] = {}

    def step(self, ts: int, number: int) -> None:
        id, v, partition = number % 7, f"v{number}", number % 3
        cells = {"id": id, "n": ts, "v": v}
        old = {"id": id, "n": 0, "v": self.rows.get(id)}
        op: Op = "UPDATE" if id in self.rows else "INSERT"
        for table in (A, B):
            change = Change(table=table, op=op, row=cells, old=old if op == "UPDATE" else None)
            self.messages.append((partition, None, encode_change(change, ts, 0)))
        if op == "UPDATE":
            self.of_a.append((ts, "update_preimage", id, self.rows[id]))
        self.of_a.append((ts, "update_postimage" if op == "UPDATE" else "insert", id, v))
        self.rows[id] = v
        change = Change(table=KEYLESS, op="INSERT", row={"x": number})
        self.messages.append((2, None, encode_change(change, ts, 0)))
        self.of_log.append((ts, "insert", number))


def feed() -> Feed:
    """With watermarks in between, and everything since the last one sent again."""
    found = Feed()
    begin = 0
    for number in range(60):
        found.step(100 + number, number)
        if number % 10 == 9:
            sent = found.messages[begin:]
            found.messages += [*marks(100 + number - 5), *sent, *marks(100 + number + 1)]
            begin = len(found.messages)
    return found


def log_of_a(rows: list[Any]) -> list[Event]:
    return [(r["_commit_ts"], r["_op"], r["id"], r["v"]) for r in rows]


def streamed(spark: SparkSession, uri: str) -> list[Any]:
    """As a streaming reader gets them, all versions one after the other."""
    stream = spark.readStream.format("delta").option("maxFilesPerTrigger", 4).load(uri)
    name = f"events_{uuid4().hex}"
    query = stream.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    query.awaitTermination()
    return spark.table(name).collect()


@pytest.mark.more  # on threads: below
@pytest.mark.spark
@pytest.mark.kafka
def test_every_event_is_in_the_log_once(new_lives_on_spark: MakeLives, spark: SparkSession) -> None:
    lives, sent = logs(new_lives_on_spark), feed()
    lives.produce([*made(10, A, B), (0, None, encode_ddl(CREATE_KEYLESS, 15, 0))])
    lives.produce(sent.messages)
    points = (Failpoint.AFTER_APPLY_ONE, Failpoint.AFTER_FENCE_CHECK, Failpoint.AFTER_PROGRESS)
    for number, point in enumerate(points):
        error = lives.live(f"{point}=raise:1", target_ts=110 + 10 * number, max_messages=20)
        assert f"failpoint {point}" in str(error)
    lives.finish(target_ts=159)

    table = spark.read.format("delta").load(f"{lives.uri}/shop/a")
    found = log_of_a(table.orderBy("_commit_ts").collect())
    assert sorted(found, key=repr) == sorted(sent.of_a, key=repr)
    assert [each[0] for each in found] == sorted(each[0] for each in found)
    log = f"{lives.uri}/shop/log"
    for rows in (spark.read.format("delta").load(log).collect(), streamed(spark, log)):
        found = [(row["_commit_ts"], row["_op"], row["x"]) for row in rows]
        assert sorted(found) == sorted(sent.of_log)
    assert values(lives, "b") == sent.rows
    assert not lives.dead_letters()
    assert {each.state for each in lives.progress().values()} == {"replicating"}


def test_a_rewind_writes_no_event_twice(new_lives: MakeLives) -> None:
    lives, sent = logs(new_lives), feed()
    lives.produce([*made(10, A, B), (0, None, encode_ddl(CREATE_KEYLESS, 15, 0))])
    lives.produce(sent.messages)
    lives.finish(target_ts=150)
    lives.finish(target_ts=159, overwrite_checkpoint_ts=120)
    assert sorted(log_of_a(lives.rows("a")), key=repr) == sorted(sent.of_a, key=repr)
    found = [(row["_commit_ts"], row["_op"], row["x"]) for row in lives.rows("log")]
    assert sorted(found) == sorted(sent.of_log)


def test_a_zombie_that_is_ahead_writes_no_event_twice(
    new_lives: MakeLives, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives, sent = logs(new_lives), feed()
    lives.produce([*made(10, A, B), (0, None, encode_ddl(CREATE_KEYLESS, 15, 0))])
    lives.produce(sent.messages)
    lives.finish(target_ts=115)
    sleep = Sleep(monkeypatch, "capture-2", above=130)
    zombie = lives.begin(target_ts=150)
    assert sleep.asleep.wait(120), "no commit came"
    zombie.line.is_cut = True  # as if all of it were asleep: its lease ends
    lives.finish_beside(target_ts=130)
    sleep.wake.set()
    zombie.stop()
    lives.finish(target_ts=159)
    assert sorted(log_of_a(lives.rows("a")), key=repr) == sorted(sent.of_a, key=repr)
    found = [(row["_commit_ts"], row["_op"], row["x"]) for row in lives.rows("log")]
    assert sorted(found) == sorted(sent.of_log)


def test_a_log_whose_create_table_was_not_read_loses_no_event_in_silence(
    new_lives: MakeLives,
) -> None:
    """A DELETE does not tell what the table is. Upserted it would have nothing to delete."""
    lives = logs(new_lives)
    lives.produce([(1, None, row(20, 1, "gone", op="DELETE")), *marks(30)])
    lives.finish(target_ts=25)
    assert [each["error_class"] for each in lives.dead_letters()] == ["no-table"]
    lives.produce([(1, None, row(40, 2, "new", op="UPDATE")), *marks(60)])
    lives.finish(target_ts=50)
    assert log_of_a(lives.rows("a")) == [
        (40, "update_postimage", 2, "new"),
        (40, "update_preimage", 2, "new"),
    ]


def test_ddls_leave_what_has_happened_as_it_was(new_lives: MakeLives) -> None:
    lives = logs(new_lives)
    first = encode_change(Change(table=A, op="INSERT", row={"id": 1, "n": 1, "v": "a"}), 20, 0)
    added = Ddl("shop", "a", "ALTER", "ALTER TABLE `shop`.`a` ADD COLUMN `m` INT DEFAULT 7")
    emptied = Ddl("shop", "a", "TRUNCATE", "TRUNCATE TABLE `shop`.`a`")
    later = first.replace(b'"v":"a"}]', b'"v":"a","m":"7"}]').replace(b'"n":4', b'"n":4,"m":4')
    later = later.replace(b'"v":"varchar"', b'"v":"varchar","m":"int"')
    later = later.replace(b'"commitTs":20', b'"commitTs":50')
    lives.produce([*made(10, A), (1, None, first)])
    lives.produce([(0, None, encode_ddl(added, 30, 0)), (0, None, encode_ddl(emptied, 40, 0))])
    lives.produce([(1, None, later), *marks(80)])
    lives.finish(target_ts=70)
    found = [(row["_commit_ts"], row["_op"], row["id"], row["m"]) for row in lives.rows("a")]
    assert sorted(found) == [(20, "insert", 1, None), (50, "insert", 1, 7)]
    assert not lives.dead_letters()


def test_a_table_in_another_mode_is_refused_in_one_line(new_lives: MakeLives) -> None:
    lives = logs(new_lives)
    lives.produce([*made(10, A), *marks(50)])
    lives.finish(target_ts=40)
    sink = replace(lives.settings.changefeed.sink, tables=())
    error = lives.live(target_ts=60, sink=sink)
    assert isinstance(error, ConfigError)
    assert "shop.a was made with write-mode = 'append'" in str(error)
    assert "\n" not in str(error)
