"""Cells that say more than their value (``contract.Cells.ENCODED``): a TIMESTAMP with the zone that
it is in. As the casts of texts want them.

    {"location":"Asia/Shanghai","value":"2020-01-02 03:04:05"}  ──►  the value, and one zone for all
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sinks.types.text_arrays import CastRules, try_cast
from sinks.types.time_zones import to_utc

_LOCATED: Final = r'^\{"location":"(?P<zone>[^"\\]*)","value":"(?P<value>[^"\\]*)"\}$'
UNNAMED_ZONE: Final = "Local"  # so Go calls the zone of its machine: the user says which it is
_BEHIND: Final = '"}'
_MICROS: Final = pa.timestamp("us")


def without_zone(texts: pa.Array, rules: CastRules) -> tuple[pa.Array, CastRules]:
    """The values of TIMESTAMPs without their zones, and the rules by which they are cast. A text
    that names no zone stays as it is."""
    first = texts.drop_null()[:1].to_pylist()
    if first and (head := re.match(_LOCATED, first[0])) is not None:
        prefix = first[0][: head.start("value")]
        if pc.all(pc.starts_with(texts, prefix)).as_py():
            values = pc.utf8_slice_codeunits(texts, len(prefix), -len(_BEHIND))
            return values, replace(rules, time_zone=_named(head["zone"], rules))
    found = pc.extract_regex(texts, _LOCATED)
    told = found.is_valid()
    zones = found.field("zone").filter(told).unique().to_pylist()
    if not zones:
        return texts, rules
    values = pc.if_else(told, found.field("value"), texts)
    for zone in zones:  # each moment in UTC; what is none stays as it is
        is_here = pc.fill_null(pc.equal(found.field("zone"), zone), False)
        values = pc.if_else(is_here, _in_utc(values, _named(zone, rules)), values)
    is_untold = pc.and_(pc.invert(told), texts.is_valid())
    values = pc.if_else(is_untold, _in_utc(values, rules.time_zone), values)
    return values, replace(rules, time_zone="UTC")


def _named(zone: str, rules: CastRules) -> str:
    return rules.time_zone if zone == UNNAMED_ZONE else zone


def _in_utc(texts: pa.Array, zone: str) -> pa.Array:
    values = [_moment(text, zone) for text in texts.to_pylist()]
    return pa.array(values, texts.type)


def _moment(text: str | None, zone: str) -> str | None:
    if text is None or re.fullmatch(r"[0-9]{4}-[0-9-]+ [0-9:.]+", text) is None:
        return text
    local = try_cast(pa.array([text]), _MICROS)
    if local is None or local.null_count:
        return text
    moment = to_utc(local, zone).cast(pa.timestamp("us")).cast(pa.string())[0].as_py()
    return str(moment)
