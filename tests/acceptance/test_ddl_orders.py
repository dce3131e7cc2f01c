"""A DDL that cannot be run stops the changefeed, and an operator says how to go on."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace

import pytest
from deltalake import DeltaTable

from coordination.failpoint import Failpoint
from sinks.target.table_properties import LAST_DDL
from streaming.cli.main import main
from tests.acceptance.one_process import Lives
from tests.acceptance.small_tables import A, B, MakeLives, made, marks, row, values
from tests.shop.canal_json import Change, Column, Ddl, encode_change, encode_ddl

pytestmark = pytest.mark.kafka

EXCHANGE = "ALTER TABLE `shop`.`a` EXCHANGE PARTITION `p` WITH TABLE `shop`.`o`"
WIDER = replace(A, columns=(*A.columns, Column("extra", "int")))


def stops(lives: Lives, commit_ts: int, target_ts: int) -> list[str]:
    """The changefeed stops right below the DDL; the commands that its error names."""
    error = lives.live(target_ts=target_ts)
    assert error is not None
    assert EXCHANGE in str(error)
    stopped = lives.changefeed()
    assert stopped is not None
    assert (stopped.state, stopped.checkpoint_ts) == ("failed", commit_ts - 1)
    return re.findall("`tidelake (ddl [^`]+)`", str(error))


def test_it_is_skipped_or_another_runs_in_its_place(
    new_lives: MakeLives, capfd: pytest.CaptureFixture[str]
) -> None:
    lives = new_lives()
    wall = Ddl("shop", "a", "ALTER", EXCHANGE)
    wide = Change(table=WIDER, op="INSERT", row={"id": 4, "n": 0, "v": "w", "extra": 7}, old=None)
    lives.produce(
        [*made(10, A, B), (0, None, row(20, 1, "x")), (1, None, row(20, 1, "y", table=B))]
    )
    lives.produce([(0, None, encode_ddl(wall, 30, 0)), (2, None, row(35, 2, "x"))])
    lives.produce([(0, None, encode_ddl(wall, 50, 0)), (1, None, encode_change(wide, 55, 0))])
    lives.produce([(1, None, row(56, 2, "z", table=B)), *marks(60)])

    skip, _ = stops(lives, 30, target_ts=58)
    assert values(lives, "a") == {1: "x"}
    main(shlex.split(skip))
    assert "start `tidelake run` again" in capfd.readouterr().out
    error = lives.live(f"{Failpoint.AFTER_DDL}=raise:1", target_ts=58)
    assert "failpoint" in str(error)
    _, apply = stops(lives, 50, target_ts=58)
    assert values(lives, "a") == {1: "x", 2: "x"}
    properties = DeltaTable(f"{lives.warehouse}/shop/a").metadata().configuration
    assert json.loads(properties[LAST_DDL])[1] == 30

    sql = "ALTER TABLE a ADD COLUMN extra INT DEFAULT 5"
    main([*shlex.split(apply)[:-1], sql])
    lives.finish(target_ts=58)
    found = {each["id"]: (each["v"], each["extra"]) for each in lives.rows("a")}
    assert found == {1: ("x", 5), 2: ("x", 5), 4: ("w", 7)}
    assert values(lives, "b") == {1: "y", 2: "z"}
    assert not lives.dead_letters()
    capfd.readouterr()
    main(["ddl", "list", "--sink-uri", f"delta://{lives.warehouse}", "--format", "json"])
    rows = json.loads(capfd.readouterr().out)["rows"]
    assert [(each["commit_ts"], each["state"], each["sql"]) for each in rows] == [
        (30, "skipped", None),
        (50, "applied", sql),
    ]


def test_a_rewind_goes_by_the_same_words(new_lives: MakeLives) -> None:
    lives = new_lives()
    wall = Ddl("shop", "a", "ALTER", EXCHANGE)
    lives.produce([*made(10, A), (0, None, row(20, 1, "x")), (0, None, encode_ddl(wall, 30, 0))])
    lives.produce([(2, None, row(35, 2, "x")), *marks(60)])
    skip, _ = stops(lives, 30, target_ts=58)
    main(shlex.split(skip))
    lives.finish(target_ts=58)
    lives.finish(target_ts=58, overwrite_checkpoint_ts=15)
    assert values(lives, "a") == {1: "x", 2: "x"}
