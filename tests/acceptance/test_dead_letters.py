"""What cannot be applied stays visible, with its bytes, and stops nothing else."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from deltalake import DeltaTable

from conf.rows.event_filter import EventFilter
from conf.settings import FilterSettings
from coordination.errors import TidelakeError
from sinks.control.dead_letters import DeadLetters
from sinks.control.snapshots import Snapshots
from tests.acceptance.one_process import CHANGEFEED
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
from tests.shop.canal_json import Change, encode_change, encode_ddl

pytestmark = pytest.mark.kafka


def test_what_cannot_be_applied_is_kept_with_its_bytes(new_lives: MakeLives) -> None:
    lives = new_lives()
    bad_cast = row(30, 1, "bad", op="UPDATE", n=77).replace(b'"n":"77"', b'"n":"seven"')
    cut = row(35, 2, "cut").replace(b'"commitTs"', b'"onlyHandleKey":true,"commitTs"')
    logged = encode_change(Change(table=KEYLESS, op="INSERT", row={"x": 1}), 36, 0)
    lives.produce([*made(10, A, B), (0, None, encode_ddl(CREATE_KEYLESS, 15, 0))])
    lives.produce([(1, None, row(20, 1, "good")), (1, None, bad_cast), (1, None, cut)])
    lives.produce([(2, None, b"\xff garbage"), (2, None, None), (2, None, logged)])  # type: ignore[list-item]
    lives.produce([(1, None, row(38, 3, "good too")), *marks(50)])
    lives.finish(target_ts=40)

    assert values(lives, "a") == {1: "good", 3: "good too"}
    found = [
        (int(each["part"][-1]), each["position"], each["error_class"], each["value"])
        for each in lives.dead_letters()
    ]
    assert found == [
        (1, 1, "cast", bad_cast),
        (1, 2, "handle-key-only", cut),
        (2, 0, "malformed", b"\xff garbage"),
        (2, 1, "empty", None),
        (2, 2, "no-key", logged),
    ]
    letter = lives.dead_letters()[0]
    assert (letter["schema_name"], letter["table_name"], letter["commit_ts"]) == ("shop", "a", 30)
    assert "cannot read 'seven' as int" in letter["message"]
    counts = {name: (p.state, p.dead_letters) for name, p in lives.progress().items()}
    assert counts == {
        "shop.a": ("warning", 2),
        "shop.b": ("replicating", 0),
        "shop.log": ("warning", 1),
    }
    feed = lives.changefeed()
    assert feed is not None
    assert feed.dead_letters == 5  # two of them are of no table that could be read
    assert "log" not in lives.versions()
    cut_row = Snapshots(str(lives.warehouse)).latest(CHANGEFEED)
    assert cut_row is not None
    assert cut_row.dead_letters == 5
    lives.produce([(1, None, row(60, 1, "mended", op="UPDATE")), *marks(80)])
    lives.finish(target_ts=70)
    assert values(lives, "a")[1] == "mended"
    assert len(lives.dead_letters()) == 5


def test_ignored_events_of_a_table_without_a_key_are_no_dead_letters(
    new_lives: MakeLives,
) -> None:
    lives = new_lives()
    lives.produce([(0, None, encode_ddl(CREATE_KEYLESS, 10, 0))])
    changes = [Change(table=KEYLESS, op=op, row={"x": 1}) for op in ("INSERT", "DELETE")]
    lives.produce([*((1, None, encode_change(change, 20, 0)) for change in changes), *marks(50)])
    rule = EventFilter(matcher=("shop.log",), ignore_event=("delete",))
    lives.finish(target_ts=40, filter=FilterSettings(event_filters=(rule,)))
    assert [letter["position"] for letter in lives.dead_letters()] == [0]


def test_what_is_of_a_table_that_the_filter_leaves_out_is_no_dead_letter(
    new_lives: MakeLives,
) -> None:
    """Whether it can be read or not. A DDL of it may be about other tables too, and is kept."""
    lives = new_lives()
    of_b = row(30, 1, "x", table=B)
    broken = [of_b[:-5], of_b.replace(b'"x"', b'"\xff"'), of_b.replace(b"commitTs", b"y")]
    lives.produce([*made(10, A, B), (1, None, row(20, 1, "good"))])
    lives.produce([*((1, None, each) for each in broken), *marks(50)])
    rules = FilterSettings(rules=("shop.*", "!shop.b"))
    lives.finish(target_ts=40, filter=rules, on_error="fail")
    assert values(lives, "a") == {1: "good"}
    assert lives.dead_letters() == []
    ddl = encode_ddl(CREATE_KEYLESS, 60, 0).replace(b'"log"', b'"b"').replace(b"commitTs", b"x")
    lives.produce([(0, None, ddl), *marks(80)])
    lives.finish(target_ts=70, filter=rules)
    (letter,) = lives.dead_letters()
    assert (letter["table_name"], letter["value"]) == ("b", ddl)


def test_on_error_fail_stops_instead_and_names_the_message(new_lives: MakeLives) -> None:
    lives = new_lives()
    bad_cast = row(30, 1, "bad", n=77).replace(b'"n":"77"', b'"n":"seven"')
    lives.produce([*made(10, A), (1, None, bad_cast), *marks(50)])
    error = lives.live(target_ts=40, on_error="fail")
    assert isinstance(error, TidelakeError)
    feed = lives.changefeed()
    assert feed is not None
    assert (feed.state, feed.error) == ("failed", str(error))
    assert {each.state for each in lives.progress().values()} <= {"stopped"}
    assert f"topic {lives.topics[0]} partition 1 offset 0" in str(error)
    assert (lives.warehouse / "_tidelake" / "dead_letters").exists()  # from the first start on
    assert not lives.dead_letters()
    lives.finish(target_ts=40)
    assert {each.state for each in lives.progress().values()} == {"warning"}
    assert len(lives.dead_letters()) == 1


def test_a_zombies_dead_letters_do_not_come_back(
    new_lives: MakeLives, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were looked through and deleted while it slept, right before it added them."""
    lives = new_lives()
    bad_cast = row(30, 1, "bad", n=77).replace(b'"n":"77"', b'"n":"seven"')
    lives.produce([*made(10, A), (1, None, bad_cast), (2, None, b"garbage"), *marks(50)])
    asleep, wake, merge = threading.Event(), threading.Event(), DeadLetters.merge

    def sleep_and_merge(self: DeadLetters, *args: Any) -> int:
        if not asleep.is_set():
            asleep.set()
            assert wake.wait(120)
        return merge(self, *args)

    monkeypatch.setattr(DeadLetters, "merge", sleep_and_merge)
    zombie = lives.begin(target_ts=40)
    assert asleep.wait(120)
    zombie.line.is_cut = True  # as if all of it were asleep: its lease ends
    lives.finish_beside(target_ts=40)
    assert len(lives.dead_letters()) == 2
    DeltaTable(str(lives.warehouse / "_tidelake" / "dead_letters")).delete()
    wake.set()
    zombie.stop()
    assert lives.dead_letters() == []
