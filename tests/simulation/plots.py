"""What hurts most is rare by chance alone: each seed has one such story in it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from tests.simulation.world import QUIET_S, SLOW_S

if TYPE_CHECKING:
    from tests.simulation.faults import Faults

Plot = Callable[["Faults", Random], None]


def zombie(faults: Faults, dice: Random) -> None:
    """A commit under way when its capture is lost."""
    _long_commits(faults)
    faults.world.pace.batch_s = 0.7
    seconds = dice.uniform(10.0, 13.0)
    faults.after(dice.uniform(3.0, 6.0), lambda: faults.freeze_for(seconds))


def partition(faults: Faults, dice: Random) -> None:
    _long_commits(faults)
    faults.after(dice.uniform(3.0, 6.0), lambda: faults.cut_etcd_for(9.0))


def widow(faults: Faults, dice: Random) -> None:
    _long_commits(faults)
    faults.after(dice.uniform(3.0, 6.0), faults.crash_two)


def _long_commits(faults: Faults) -> None:
    pace = faults.world.pace
    pace.commit_s, pace.long_chance, pace.slow_s = QUIET_S, 0.5, 0.2


def shuttle(faults: Faults, dice: Random) -> None:  # noqa: ARG001 - a plot's
    """Tables that never rest."""
    pace, network = faults.world.pace, faults.world.network
    pace.slow_s, pace.commit_s = 0.2, 0.5
    network.double, network.late, network.late_s = 0.6, 0.4, 6.0
    for second in range(3, 15, 3):
        faults.after(second, faults.move_many)


def doubt(faults: Faults, dice: Random) -> None:
    """Much happens that nobody has heard of."""
    for second in range(2, 16, 2):
        faults.after(second, dice.choice((faults.delete_owner_key, faults.pause, faults.stop)))
        faults.after(second, faults.delay_watches)
        faults.after(second + 0.5, faults.lose_answers)
        faults.after(second + 0.5, faults.lose_answers)


def abdication(faults: Faults, dice: Random) -> None:
    """Another owner in the midst of moves, of which the one before hears late. A commit of one who
    lives may last longer than any grace."""
    pace = faults.world.pace
    pace.commit_s, pace.long_chance, pace.slow_s = SLOW_S, 0.3, 0.2
    pace.batch_s = 0.7
    for second in range(2, 17, 5):
        faults.after(second, faults.move_many)
        faults.after(second + dice.uniform(0.5, 3.0), faults.delete_owner_key)


def fickle(faults: Faults, dice: Random) -> None:
    """An operator who cannot decide."""
    feed = faults.feed
    for second in range(2, 18, 2):
        faults.after(second - 1, lambda: faults.create_again(feed))
        faults.after(second, lambda: faults.create_again(feed))
        faults.after(second, faults.delay_watches_of_owner)
        faults.after(second + dice.random(), lambda: faults.remove_only(feed))


def none(faults: Faults, dice: Random) -> None:
    """Chance alone."""


PLOTS: Final[tuple[Plot, ...]] = (
    zombie,
    partition,
    widow,
    shuttle,
    abdication,
    doubt,
    fickle,
    none,
)
