"""How a life of the program ends by ``kill -9``."""

from __future__ import annotations

import random
import signal
import time
from dataclasses import dataclass

from coordination.failpoint import Failpoint
from tests.acceptance.processes import Life

LATEST_S = 1.0  # after its first batch: the next ones come within a second or two


@dataclass(frozen=True)
class Victim:
    """At the nth passage of a step, or ``step`` None: at a random moment.

    At a step the Python driver kills itself, and its JVM is left alone.
    """

    step: Failpoint | None = None
    nth: int = 1
    engine: str = "auto"
    group: bool = False
    jvm: bool = False  # it alone; its driver must say so

    @property
    def settings(self) -> dict[str, str]:
        chosen = {"apply_engine": self.engine}
        return chosen | ({"failpoints": f"{self.step}=kill:{self.nth}"} if self.step else {})

    def die(self, life: Life, dice: random.Random) -> None:
        """Blocks until this is how the life has ended."""
        if self.step is None:
            life.await_line("applied a batch")
            time.sleep(dice.random() * LATEST_S)
        if self.jvm:
            life.signal_jvm(signal.SIGKILL)
            assert life.await_exit() == 1, life.tail()
            assert life.lines()[-1].count("ERROR tidelake: Spark has ended"), life.tail()
            return
        if self.step is None:
            life.kill(group=self.group)
        code = life.await_exit()
        assert code == -signal.SIGKILL, f"{self}: exit code {code}\n{life.tail()}"
