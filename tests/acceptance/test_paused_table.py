"""A table that an operator has paused waits, shown as such; the others go on."""

from __future__ import annotations

from sinks.merge_on_write.log.pause import set_paused
from tests.acceptance.small_tables import A, B, MakeLives, made, marks, row, values


def test_it_waits_alone_and_has_its_rows_when_it_goes_on(new_lives: MakeLives) -> None:
    lives = new_lives()
    lives.produce([*made(900, A, B), (0, None, row(1000, 1, "one")), *marks(1010)])
    life = lives.begin()
    life.wait_until(lambda: lives.progress().keys() == {"shop.a", "shop.b"})
    life.wait_until(lambda: values(lives, "a") == {1: "one"})
    life.wait_until(lambda: lives.progress()["shop.a"].checkpoint_ts >= 1000)
    assert lives.progress()["shop.a"].state == "replicating"
    assert set_paused(f"{lives.uri}/shop/a", {}, paused=True)
    more = [row(1020, 2, "two"), row(1021, 1, "beside", table=B)]
    lives.produce([*((0, None, each) for each in more), *marks(1030)])
    life.wait_until(lambda: lives.progress()["shop.a"].state == "paused")
    life.wait_until(lambda: values(lives, "b") == {1: "beside"})
    assert values(lives, "a") == {1: "one"}
    assert set_paused(f"{lives.uri}/shop/a", {}, paused=False)
    life.wait_until(lambda: values(lives, "a") == {1: "one", 2: "two"})
    life.wait_until(lambda: lives.progress()["shop.a"].state == "replicating")
    assert life.stop() is None
