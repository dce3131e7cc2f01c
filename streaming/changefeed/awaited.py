"""A sentence that says what a changefeed awaits though nothing is wrong, from its row. Pure."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Final

from coordination.model import tso_time
from sinks.control.changefeeds import ChangefeedRow

SILENT_S: Final = 45.0  # TiCDC tells a watermark each second


def awaited(row: ChangefeedRow) -> str:
    """In a sentence, for an operator; empty: nothing unexpected."""
    if silent := without_watermark(row):
        return f"no watermark yet from {', '.join(silent)}: every table waits for it"
    floor_ts = row.max_published_ts
    if row.state == "loading" and not row.source_positions:
        return (
            "loading: the tables are being copied, and none is to be read yet. The log of the "
            "`tidelake run` says how far each is"
        )
    if row.state == "loading":
        at = tso_time(floor_ts).isoformat(timespec="milliseconds")
        return (
            "loading: the tables were copied while they changed, and show rows of different "
            f"moments until the changes up to {floor_ts} ({at}) are applied too. State running and "
            "the first snapshot come then"
        )
    if row.state == "running" and (silent_since := _silent_since(row)) is not None:
        least = min(mark.ts for mark in row.watermarks.values())
        late = sorted(name for name, mark in row.watermarks.items() if mark.ts == least)
        return (
            f"nothing newer than {silent_since.isoformat(timespec='milliseconds')} has come from "
            f"{', '.join(late)}, and all before is in the tables: they wait for "
            "a watermark. Does what writes there run (TiCDC's changefeed)?"
        )
    if row.state not in ("rewinding", "warning") or not 0 < row.checkpoint_ts <= floor_ts:
        return ""
    late = sorted(name for name, mark in row.watermarks.items() if mark.ts <= floor_ts + 1)
    of = f" of {', '.join(late)}" if late else ""
    at = tso_time(floor_ts).isoformat(timespec="milliseconds")
    return (
        f"rewinding: changes above {row.start_ts} are applied once more, and have been up to "
        f"{row.checkpoint_ts}. Tables may show newer rows than that: state running and the next "
        f"snapshot come with a watermark{of} above {floor_ts + 1} ({at}), where the changefeed was "
        "before the rewind"
    )


def _silent_since(row: ChangefeedRow) -> datetime | None:
    """The time up to which the source has told all, where that is long ago, and all is applied."""
    is_done = row.messages_behind == 0 and row.checkpoint_ts >= row.resolved_ts > 0
    at = tso_time(row.resolved_ts)
    is_long = row.updated_at - at > timedelta(seconds=SILENT_S)
    return at if is_done and is_long and row.watermarks else None


def delivery(row: ChangefeedRow) -> str | None:
    """``at-least-once`` where its source cannot be exact."""
    found: str | None = json.loads(row.row_rules or "{}").get("delivery")
    return found


def without_watermark(row: ChangefeedRow) -> list[str]:
    """The parts that are read to their end and have no watermark: they hold every table back.
    A part that is not read to its end is left out, since its watermark may still come.
    """
    return sorted(
        part
        for part, position in row.read_positions.items()
        if position >= row.end_positions.get(part, position + 1)
        and (part not in row.watermarks or row.watermarks[part].ts <= 0)
    )
