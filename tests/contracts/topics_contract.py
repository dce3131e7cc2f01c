"""What a cluster of tests must do."""

from __future__ import annotations

from tests.fakes.memory_broker import MemoryBroker
from tests.services.kafka_broker import KafkaBroker

Cluster = KafkaBroker | MemoryBroker
