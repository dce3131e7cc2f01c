from __future__ import annotations

import random

from coordination.scheduler.low_water import LowWater


def test_the_minimum_of_timestamps_that_come_move_and_go():
    rng, water, plain = random.Random(1), LowWater(), []
    assert water.min() is None
    for _ in range(5_000):
        match rng.randrange(3):
            case 0:
                plain.append(rng.randrange(1_000))
                water.add(plain[-1])
            case 1 if plain:
                water.remove(plain.pop(rng.randrange(len(plain))))
            case 2 if plain:
                at = rng.randrange(len(plain))
                after = plain[at] + rng.randrange(50)
                water.move(plain[at], after)
                plain[at] = after
        if rng.random() < 0.3:
            assert water.min() == min(plain, default=None)


def test_one_that_stands_still_does_not_make_the_rest_pile_up():
    water = LowWater()
    water.add(1)
    water.add(2)
    for ts in range(2, 100_000):
        water.move(ts, ts + 1)
    assert water.min() == 1
    assert len(water._heap) < 2_000
