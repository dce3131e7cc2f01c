"""What an operator does with dead letters, by the command line: beside a run and without one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from coordination import failpoint
from coordination.failpoint import Failpoint, FailpointHit
from sinks.control.dead_letters import DeadLetters
from streaming.cli.main import app, main
from tests.acceptance.one_process import CHANGEFEED, Lives
from tests.acceptance.small_tables import A, B, MakeLives, made, marks, row, values
from tests.shop.canal_json import Change, Column, Ddl, encode_change, encode_ddl

pytestmark = pytest.mark.kafka

Letters = Callable[..., list[dict[str, Any]]]
BIG = 77_777_777_777
WIDER = replace(
    A, columns=tuple(replace(c, type="bigint") if c.name == "n" else c for c in A.columns)
)
WIDEN = Ddl("shop", "a", "ALTER", "ALTER TABLE `shop`.`a` MODIFY COLUMN `n` BIGINT")


@pytest.fixture
def tidelake(capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs a command with --format json; its exit code and its rows."""

    def run(lives: Lives, *arguments: str) -> tuple[int, Any]:
        capfd.readouterr()
        code = 0
        try:
            main([*arguments, "--sink-uri", f"delta://{lives.warehouse}", "--format", "json"])
        except SystemExit as end:
            code = int(end.code or 0)
        return code, json.loads(capfd.readouterr().out or "{}")

    return run


def bad(ts: int, id: int, v: str, **more: Any) -> bytes:
    """A row with a number that only the wider column holds."""
    return row(ts, id, v, n=BIG, **more)


def states(tidelake: Callable[..., Any], lives: Lives, *which: str) -> dict[int, str]:
    """By offset in partition 1."""
    _, found = tidelake(lives, "dead-letters", "list", "--part", f"{lives.topics[0]}/1", *which)
    return {each["position"]: each["state"] for each in found["rows"]}


def test_what_is_replayed_is_there_once_and_never_over_a_newer_change(
    new_lives: MakeLives, tidelake: Callable[..., Any]
) -> None:
    lives = new_lives()
    lives.produce([*made(10, A, B), (1, None, bad(20, 1, "one")), (1, None, bad(21, 2, "two"))])
    lives.produce([(1, None, row(22, 3, "three")), (1, None, bad(23, 3, "later", op="UPDATE"))])
    lives.produce([(1, None, b"\xff garbage"), *marks(30)])
    lives.finish(target_ts=25)
    assert states(tidelake, lives) == dict.fromkeys((0, 1, 3, 4), "open")
    assert lives.progress()["shop.a"].state == "warning"

    # Nothing is mended: all stay open, and say why.
    code, found = tidelake(lives, "dead-letters", "replay", "--all")
    assert code == 1
    assert {each["state"] for each in found["rows"]} == {"open"}
    assert "int" in found["rows"][0]["refusal"]
    assert values(lives, "a") == {3: "three"}

    lives.produce([(1, None, row(40, 2, "newer")), *marks(50)])
    lives.finish(target_ts=45)
    assert states(tidelake, lives)[1] == "superseded"

    lives.produce([(0, None, encode_ddl(WIDEN, 60, 0)), *marks(70)])
    lives.finish(target_ts=65)
    code, found = tidelake(lives, "dead-letters", "replay", "--table", "shop.a")
    assert code == 0, found
    assert values(lives, "a") == {1: "one", 2: "newer", 3: "later"}
    assert {each["id"]: each["n"] for each in lives.rows("a")} == {1: BIG, 2: 0, 3: BIG}
    assert states(tidelake, lives) == {0: "replayed", 1: "superseded", 3: "replayed", 4: "open"}
    _, found = tidelake(lives, "progress")
    (feed,) = found["changefeeds"]
    of_table = {each["table_name"]: each for each in found["spans"]}["a"]
    assert (feed["dead_letters"], of_table["dead_letters"]) == (1, 0)
    assert of_table["last_state"] == "replicating"

    version = lives.versions()["a"]
    tidelake(lives, "dead-letters", "replay", "--table", "shop.a")
    assert lives.versions()["a"] == version
    code, found = tidelake(lives, "dead-letters", "show", "--position", "4")
    assert found["rows"][0]["value_base64"]
    code, found = tidelake(lives, "dead-letters", "resolve", "--position", "4", "--note", "junk")
    assert (found["rows"][0]["state"], found["rows"][0]["note"]) == ("resolved", "junk")
    assert "operator" in found["rows"][0]["state_by"]
    lives.produce([(1, None, row(80, 1, "after")), *marks(90)])
    lives.finish(target_ts=85)
    assert values(lives, "a")[1] == "after"
    after = lives.changefeed()
    assert after is not None
    assert after.dead_letters == 0
    assert lives.progress()["shop.a"].state == "replicating"


def test_a_replay_beside_a_life_and_who_dies_over_it(
    new_lives: MakeLives, tidelake: Callable[..., Any]
) -> None:
    lives = new_lives()
    lives.produce([*made(10, A), (1, None, bad(20, 1, "one")), (1, None, bad(21, 2, "two"))])
    lives.produce([(0, None, encode_ddl(WIDEN, 30, 0)), *marks(40)])
    life = lives.begin()
    life.wait_until(lambda: (lives.progress().get("shop.a") or _NONE).checkpoint_ts >= 39)
    for step in (Failpoint.AFTER_FENCE_CHECK, Failpoint.AFTER_APPLY_ONE):
        failpoint.configure(f"{step}=raise:1")
        with pytest.raises(FailpointHit):
            app(
                ["dead-letters", "replay", "--position", "0", "--sink-uri", f"delta://{lives.uri}"],
                standalone_mode=False,
            )
        failpoint.configure("")
    assert states(tidelake, lives) == {0: "open", 1: "open"}
    assert values(lives, "a") == {1: "one"}
    code, _ = tidelake(lives, "dead-letters", "replay", "--position", "1")
    assert code == 0
    lives.produce([(1, None, row(50, 1, "newer")), (1, None, row(51, 3, "new")), *marks(60)])
    life.wait_until(lambda: lives.progress()["shop.a"].checkpoint_ts >= 59)
    assert states(tidelake, lives) == {0: "superseded", 1: "replayed"}
    code, _ = tidelake(lives, "dead-letters", "replay", "--all")
    assert values(lives, "a") == {1: "newer", 2: "two", 3: "new"}
    life.wait_until(lambda: lives.progress()["shop.a"].state == "replicating")
    life.wait_until(lambda: (lives.changefeed() or _NONE).dead_letters == 0)
    life.stop()
    lives.look()


class _None:
    checkpoint_ts = 0
    state = ""
    dead_letters = None


_NONE = _None()


def test_a_delete_is_replayed_and_a_rewind_closes_what_it_brings_in(
    new_lives: MakeLives, tidelake: Callable[..., Any]
) -> None:
    lives = new_lives()
    extra = replace(A, columns=(*A.columns, Column("extra", "int")))
    wide = Change(table=extra, op="INSERT", row={"id": 4, "n": 0, "v": "w", "extra": 7}, old=None)
    lives.produce([*made(10, A), (1, None, row(20, 1, "x")), (1, None, encode_change(wide, 21, 0))])
    lives.produce(marks(30))
    lives.finish(target_ts=25)
    assert states(tidelake, lives) == {1: "open"}
    gone = row(24, 1, "x", op="DELETE")
    letter = {
        "changefeed_id": CHANGEFEED, "part": f"{lives.topics[0]}/1", "position": 77, "identity": "",
        "value": gone, "schema_name": "shop", "table_name": "a", "commit_ts": 24,
        "error_class": "malformed", "message": "of an older build",
    }  # fmt: skip
    import pyarrow as pa

    DeadLetters(str(lives.warehouse)).merge(pa.Table.from_pylist([letter]))
    code, found = tidelake(lives, "dead-letters", "replay", "--position", "77")
    assert (code, found["rows"][0]["state"]) == (0, "replayed")
    assert values(lives, "a") == {}

    lives.finish(overwrite_checkpoint_ts=15, target_ts=25, on_unknown_column="drop")
    assert values(lives, "a") == {1: "x", 4: "w"}
    _, found = tidelake(lives, "dead-letters", "list", "--position", "1")
    assert found["rows"][0]["state"] == "replayed"
    assert "rewind" in found["rows"][0]["state_by"]


def test_no_replay_brings_back_what_a_ddl_has_taken_out(
    new_lives: MakeLives, tidelake: Callable[..., Any]
) -> None:
    lives = new_lives()
    empty = Ddl("shop", "a", "TRUNCATE", "TRUNCATE TABLE `shop`.`a`")
    lives.produce([*made(10, A), (1, None, bad(20, 1, "one")), (0, None, encode_ddl(empty, 25, 0))])
    lives.produce([(1, None, bad(27, 2, "two")), (0, None, encode_ddl(WIDEN, 30, 0)), *marks(40)])
    lives.finish(target_ts=35)
    tidelake(lives, "dead-letters", "replay", "--all")
    assert values(lives, "a") == {2: "two"}
    assert states(tidelake, lives) == {0: "superseded", 1: "replayed"}


def test_a_table_with_too_many_stops_until_they_are_handled(
    new_lives: MakeLives, tidelake: Callable[..., Any]
) -> None:
    lives = new_lives()
    lives.produce([*made(10, A, B), (1, None, bad(20, 1, "one")), (1, None, bad(21, 2, "two"))])
    lives.produce(marks(30))
    life = lives.begin(max_dead_letters=1)
    life.wait_until(lambda: (lives.progress().get("shop.a") or _NONE).state == "blocked")
    lives.produce([(1, None, row(40, 3, "x")), (1, None, row(41, 3, "x", table=B)), *marks(50)])
    life.wait_until(lambda: lives.progress()["shop.b"].checkpoint_ts >= 49)
    assert values(lives, "a") == {}
    feed = lives.changefeed()
    assert feed is not None
    assert "max-dead-letters" in str(feed.error)
    tidelake(lives, "dead-letters", "resolve", "--position", "0")
    life.wait_until(lambda: lives.progress()["shop.a"].checkpoint_ts >= 49)
    assert values(lives, "a") == {3: "x"}
    life.wait_until(lambda: lives.progress()["shop.a"].state == "warning")
    life.stop()
    lives.look()
