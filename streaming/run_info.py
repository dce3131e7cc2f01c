"""The changefeed of a `run` as its scope in etcd has it: what captures of it must agree on.

How a process works on it (brokers and who logs in there, storage options, engine, batches) is its
own, and no secret comes here: each capture works by its own settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime

from conf.settings import Changefeed
from coordination.metadata.model import ChangefeedInfo, rfc3339
from coordination.model import ChangefeedID, Ts
from coordination.run_admission import RUN
from coordination.version import tidelake_version

SINK = "sink-uri"


def info_of(changefeed: Changefeed) -> ChangefeedInfo:
    """Where it starts is not in it: the row in Delta says that, from the first start on."""
    return ChangefeedInfo(
        id=ChangefeedID(changefeed.id),
        sink_uri=f"kafka:///{changefeed.source.topic}?protocol={changefeed.source.protocol}",
        create_time=rfc3339(datetime.now(UTC)),
        target_ts=Ts(changefeed.target_ts or 0),
        config={RUN: described(changefeed)},
        creator_version=tidelake_version(),
    )


def described(changefeed: Changefeed) -> dict[str, str | None]:
    """By the names of the settings, as text; None: not given."""
    source, given = changefeed.source, changefeed.filter
    values = {
        "topics": ",".join(sorted(source.topics)),
        "protocol": source.protocol,
        "partition-num": source.partition_num,
        "time-zone": source.time_zone,
        SINK: changefeed.sink.warehouse,
        "target-ts": changefeed.target_ts,
        "overwrite-checkpoint-ts": changefeed.overwrite_checkpoint_ts,
        "filter.rules": ",".join(given.rules),
        "filter.event-filters": [asdict(each) for each in given.event_filters] or None,
        "case-sensitive": given.case_sensitive,
        "zero-date": changefeed.zero_date,
        "on-error": changefeed.on_error,
        "on-unknown-column": changefeed.on_unknown_column,
    }
    return {name: None if value is None else str(value) for name, value in values.items()}


def warehouse_of_run(info: ChangefeedInfo) -> str | None:
    found: Mapping[str, str] = (info.config or {}).get(RUN) or {}
    return found.get(SINK)
