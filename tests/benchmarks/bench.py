"""What every part is given: sizes, a broker, the contenders, and a way to fail alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.benchmarks.contenders import Contender, DeltaRs, Naive, Setting, Tidelake
from tests.benchmarks.measure import ContenderFailed
from tests.benchmarks.sizes import Size
from tests.benchmarks.targets import TablesDiffer
from tests.services.kafka_broker import KafkaBroker

CONTENDERS = {"naive": Naive, "delta-rs": DeltaRs, "tidelake": Tidelake}


@dataclass(slots=True, kw_only=True)
class Bench:
    """``names``: the contenders that take part."""

    size: Size
    names: list[str]
    broker: KafkaBroker
    setting: Setting
    failures: list[str] = field(default_factory=list)

    def contenders(self) -> list[Contender]:
        return [CONTENDERS[name](self.setting) for name in self.names]

    def say(self, message: str) -> None:
        self.setting.say(message)

    def attempt(self, what: str, work: Callable[[], None]) -> None:
        """One that fails is told, and the others still run."""
        try:
            work()
        except (ContenderFailed, TablesDiffer, AssertionError) as error:
            self.failures.append(f"{what}: {error}")
            self.say(f"FAILED {self.failures[-1]}")
