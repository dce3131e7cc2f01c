"""Rows that cannot be applied get their messages back, a part of them at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from sinks.control.dead_letters import DeadLetters, LetterWriter
from streaming.apply.letters.dead_letter_writer import DeadLetterWriter
from streaming.apply.row_errors import ERRORS
from streaming.source.contract import RAW
from tests.services.delta_rows import read_rows
from tests.streaming.apply.blocks import A


def test_messages_come_in_parts_and_one_that_is_gone_is_a_letter_too(tmp_path: Path) -> None:
    gone = 3

    def values(places: Mapping[str, Sequence[int]]) -> Iterator[pa.Table]:
        ((part, wanted),) = places.items()
        for first in range(0, len(wanted), 2):
            rows = [
                {"part": part, "position": at, "value": b"%d" % at}
                for at in wanted[first : first + 2]
                if at != gone
            ]
            yield pa.Table.from_pylist(rows, RAW)

    by = LetterWriter(changefeed_id="c", incarnation=1, term=None, check=lambda: None)
    dead_letters = DeadLetters(str(tmp_path))
    writer = DeadLetterWriter(
        by=by,
        dead_letters=dead_letters,
        values=values,
        identities=lambda: {"shop/0": "a topic's ID"},
        fail=False,
    )
    errors = [
        {"part": "shop/0", "position": at, "index": 0, "commit_ts": 10 + at,
         "error_class": "cast", "message": f"why {at}"}
        for at in (0, 1, 2, gone, 5, 7)
    ]  # fmt: skip

    writer.add_rows({A: pa.Table.from_pylist(errors, ERRORS)})

    found = sorted(read_rows(tmp_path / "_tidelake" / "dead_letters"), key=lambda r: r["position"])
    assert [(each["position"], each["message"], each["value"]) for each in found] == [
        (0, "why 0", b"0"),
        (1, "why 1", b"1"),
        (2, "why 2", b"2"),
        (gone, f"why {gone}", None),
        (5, "why 5", b"5"),
        (7, "why 7", b"7"),
    ]
    assert {each["identity"] for each in found} == {"a topic's ID"}
    assert writer.counts == {A: 6}
