"""`tidelake record`: what of a topic goes into a file, as an operator says it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from conf.sources.kafka_uri import KafkaSettings
from conf.sources.source_uri import SourceSettings
from coordination.errors import ConfigError
from streaming.source.recording.recorder import Section, record

ENDINGS = (".jsonl", ".jsonl.gz")


def record_topic(
    source: SourceSettings,
    output: Path,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    begin: Sequence[str] = (),
    end: Sequence[str] = (),
    mask: bool = False,
    told: Callable[[int, int], None] = lambda *_: None,
) -> int:
    """Returns how many messages were recorded. ``begin`` and ``end``: places such as
    ``shop/0=4711``; a time without a zone is UTC. Raises ConfigError, SourceAway, SourceLost."""
    if not isinstance(source, KafkaSettings):
        raise ConfigError("source-uri: only a Kafka topic can be recorded: use kafka://")
    if not output.name.endswith(ENDINGS):
        raise ConfigError(f"--output {output}: its name must end in {' or '.join(ENDINGS)}")
    section = Section(
        begin=_positions("--from", begin),
        end=_positions("--to", end),
        since_ms=_ms(since),
        until_ms=_ms(until),
    )
    seed = secrets.randbits(64) if mask else None
    return record(source, output, section, seed=seed, told=told).messages


def _ms(moment: datetime | None) -> int | None:
    if moment is None:
        return None
    at = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return round(at.timestamp() * 1e3)


def _positions(option: str, given: Sequence[str]) -> dict[str, int]:
    found = {}
    for each in given:
        part, equals, at = each.rpartition("=")
        if not equals or not at.isdecimal() or "/" not in part:
            raise ConfigError(f"{option} {each!r} must look like shop/0=4711")
        found[part] = int(at)
    return found
