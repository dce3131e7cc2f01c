"""What a broker of the tests is told: its listeners, and everything small and fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SASL_USER = "tidelake"
SASL_PASSWORD = "marked-s3cret/&+=1"  # has to be quoted in a URI; tests search for it
PLAIN_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'user_{SASL_USER}="{SASL_PASSWORD}";'
)
_SETTINGS = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.ms": "-1",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "message.max.bytes": "16777216",
    "num.io.threads": "2",
    "num.network.threads": "2",
}
LOGGING = """\
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = OUT
appender.out.type = Console
appender.out.name = OUT
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1} %m%n
"""


@dataclass(frozen=True)
class Listener:
    """One more port of a broker; ``settings`` without their ``listener.name.<name>.``."""

    name: str
    protocol: str
    settings: Mapping[str, str] = field(default_factory=dict)


SASL_LISTENER = Listener(
    "sasl_plaintext",
    "SASL_PLAINTEXT",
    {"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": PLAIN_JAAS},
)


@dataclass(frozen=True)
class Node:
    """One process of a cluster. ``voter`` is the controller, ``id@host:port``: of node 1."""

    id: int
    voter: str
    ports: Mapping[str, int]  # by listener; "plaintext" is always there
    listeners: Sequence[Listener]
    folder: Path

    def properties(self, more: Mapping[str, str]) -> str:
        """The text of ``server.properties``."""
        every = [Listener("plaintext", "PLAINTEXT"), *self.listeners]
        places = [f"{each.name.upper()}://127.0.0.1:{self.ports[each.name]}" for each in every]
        controls = self.voter.startswith(f"{self.id}@")
        controller = [f"CONTROLLER://{self.voter.partition('@')[2]}"] if controls else []
        protocols = [f"{each.name.upper()}:{each.protocol}" for each in every]
        lines = {
            "process.roles": "broker,controller" if controls else "broker",
            "node.id": str(self.id),
            "listeners": ",".join([*places, *controller]),
            "advertised.listeners": ",".join(places),
            "listener.security.protocol.map": ",".join([*protocols, "CONTROLLER:PLAINTEXT"]),
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": self.voter,
            "log.dirs": str(self.folder / "data"),
            **_SETTINGS,
            **more,
        }
        for each in self.listeners:
            lines |= {f"listener.name.{each.name}.{k}": v for k, v in each.settings.items()}
        return "".join(f"{name}={value}\n" for name, value in lines.items())
