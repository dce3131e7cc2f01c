"""Other values for the rows of the recordings, in messages and in the truth."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.services import wire
from tests.services.other_recordings.cells import ENCODERS, UTC_ZONE, Encode, base
from tests.services.other_recordings.extremes import other_value
from tests.services.other_recordings.go_json import dumps
from tests.services.other_recordings.names import place

# Keys that partitions or later DDLs depend on; and columns whose values a DDL gives to rows that
# are not sent again.
KEPT = {
    *(("orders", each) for each in ("id", "status", "maybe", "score", "order")),
    *(("events", each) for each in ("id", "grp")),
    *(("tmp_one", each) for each in ("k", "extra")),
    *(("stock", "seq"), ("coupon", "sub"), ("coupon", "v"), ("alltypes", "id")),
}
UNIQUE = {("stock", "region"), ("coupon", "code")}
_TRIES = 50
Place = tuple[str, str]  # a table, and its column
Cell = Callable[[str, str, Any], Any]  # table, column, the cell as the message has it


def any_value(_type: str, _value: Any) -> bool:
    return True


def survives_debezium(mysql_type: str, value: Any) -> bool:
    """Whether TiCDC's encoder of Debezium keeps it."""
    kind = base(mysql_type)
    if kind == "decimal":
        return len(value.lstrip("-").replace(".", "").strip("0")) <= 15
    if kind in ("date", "datetime", "timestamp"):
        return bool(value >= "1000")
    return True


@dataclass
class Values:
    """``new``: by column, from what SELECT showed (as JSON) to what it shows now; NULL and zero
    dates stay, but of a TIMESTAMP. ``types``: of the columns. ``zone``: of the TiCDC server."""

    seed: int
    share: float = 0.8  # of the values that are exchanged
    zone: str = UTC_ZONE
    may_be: Callable[[str, Any], bool] = any_value
    new: dict[Place, dict[str, Any]] = field(default_factory=dict)
    types: dict[Place, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        dice = random.Random(self.seed)
        for label in wire.LABELS:
            for name, table in wire.shown(label).items():
                for column in table["columns"]:
                    at = place(name, column["name"])
                    self.types.setdefault(at, column["type"])
                    for row in table["rows"]:
                        self._exchange(dice, at, row[column["name"]])

    def _exchange(self, dice: random.Random, at: Place, was: Any) -> None:
        of = self.new.setdefault(at, {})
        if was is None or dumps(was) in of:
            return
        is_zero = base(self.types[at]) in ("date", "datetime") and was.startswith("0000")
        now = was
        if at not in KEPT and not is_zero and dice.random() < self.share:
            taken = {dumps(each) for each in of.values()} if at in UNIQUE else set()
            for _ in range(_TRIES):
                made = other_value(dice, self.types[at])
                if self.may_be(self.types[at], made) and dumps(made) not in taken:
                    now = made
                    break
        of[dumps(was)] = now

    def now(self, table: str, column: str, was: Any) -> Any:
        """What SELECT shows now."""
        return was if was is None else self.new.get(place(table, column), {}).get(dumps(was), was)

    def exchanged(self, encode: Encode, encode_now: Encode | None = None) -> dict[Place, Any]:
        """By column, from cells as they are written to cells as they are written now."""
        return {
            at: {
                dumps([encode(self.types[at], json.loads(was), UTC_ZONE)]): (encode_now or encode)(
                    self.types[at], now, self.zone
                )
                for was, now in of.items()
            }
            for at, of in self.new.items()
        }

    def cell(self, protocol: str) -> Cell:
        """For the messages of a protocol. Values that no state has only go to another zone."""
        encode = ENCODERS[protocol]
        exchanged = self.exchanged(encode)

        def cell(table: str, column: str, sent: Any) -> Any:
            at, key = place(table, column), dumps([sent])
            if key in exchanged.get(at, {}):
                return exchanged[at][key]
            kind = self.types.get(at, "")
            if base(kind) != "timestamp" or sent is None or protocol == "debezium":
                return sent
            return encode(kind, sent["value"] if isinstance(sent, dict) else sent, self.zone)

        return cell
