"""What hurts most is rare by chance alone: each seed has one such story in it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from tests.simulation.world import LONG_S, SESSION, SLOW_S

if TYPE_CHECKING:
    from tests.simulation.faults import Faults

Plot = Callable[["Faults", Random], None]


def zombie(faults: Faults, dice: Random) -> None:
    """A commit under way when its capture is lost."""
    seconds = dice.uniform(10.0, 13.0)
    _amid_long_commits(faults, dice, lambda: faults.freeze_for(seconds))


def partition(faults: Faults, dice: Random) -> None:
    _amid_long_commits(faults, dice, lambda: faults.cut_etcd_for(9.0))


def widow(faults: Faults, dice: Random) -> None:
    """The owner is lost too: who comes next has never seen the other one."""

    def deed() -> None:
        faults.cut_etcd_for(9.0)
        faults.after(0.3, lambda: faults.cut_off(faults.world.owner, 9.0))

    _amid_long_commits(faults, dice, dice.choice((faults.crash_two, deed)))


def _amid_long_commits(faults: Faults, dice: Random, deed: Callable[[], None]) -> None:
    """They begin just before it, and who comes next is quick."""
    pace, network = faults.world.pace, faults.world.network
    network.loss = network.late = 0.0
    pace.commit_s, pace.long_chance, pace.long_least, pace.slow_s = LONG_S, 0.0, 0.95, 0.2
    pace.batch_s, pace.read = None, 40
    at = dice.uniform(6.0, 9.0)
    faults.after(at - 0.5, lambda: setattr(pace, "long_chance", 1.0))
    faults.after(at, deed)
    faults.after(at + SESSION.ttl_s, lambda: setattr(pace, "long_chance", 0.0))


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
    pace.commit_s, pace.long_chance, pace.slow_s = SLOW_S, 0.5, 0.2
    pace.batch_s = 0.7
    for second in (5, 14):
        faults.after(second, faults.move_many)
        faults.after(second + dice.uniform(1.0, 3.5), faults.delete_owner_key)


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
