"""TiCDC sends each DDL of maxwell to all partitions, with its commit-ts, and rows with whole
seconds: by the numbers that readers give, rows lie on the right side of it in each partition."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
import pytest

from streaming.protocols.contract import Kind, Messages
from streaming.protocols.decoders import decoder_of
from streaming.source.resolved.commit_clock import Pin
from streaming.source.resolved.numbering import NumberedDecoder
from tests.services import wire
from tests.streaming.protocols.canal_json.reading import EveryTable

Numbered = list[tuple[int, bool, int]]  # TiDB's own commit-ts, whether it is a DDL, the number


def sent_at(note: str) -> int:
    return int(re.findall(r"commitTs=(\d+)", note)[0])


def numbers_of(chunk_size: int, *, is_reversed: bool) -> Iterator[tuple[str, Numbered]]:
    """Of each partition, before TiCDC begins anew. The partitions are read one after the other."""
    decode = decoder_of("maxwell")
    assert decode.own_ms is not None
    parts = {f"wire/{n}": sent for n, sent in wire.partitions("maxwell").items()}
    pins = {part: (Pin(0, 0),) for part in parts}
    begin = dict.fromkeys(parts, 0)
    numbering = NumberedDecoder(decode, decode.own_ms, pins, begin).started()
    for part in sorted(parts, reverse=is_reversed):
        sent = [each for each in parts[part] if each.note.startswith("normal")]
        found: Numbered = []
        for first in range(0, len(sent), chunk_size):
            some = sent[first : first + chunk_size]
            chunk = Messages(
                part=part,
                positions=pa.array(range(first, first + len(some)), pa.int64()),
                values=pa.array([each.value for each in some], pa.binary()),
            )
            made = numbering.number(chunk)
            assert made.commit_ts is not None
            found += [
                (sent_at(each.note), each.note.startswith("normal ddl"), number)
                for each, number in zip(some, made.commit_ts.to_pylist(), strict=True)
            ]
            blocks = list(decode(made, EveryTable(None)))
            assert part == "wire/0" or all(block.kind is not Kind.DDL for block in blocks)
        yield part, found


@pytest.mark.parametrize("chunk_size", [1_000, 7])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_rows_lie_on_the_right_side_of_each_ddl(chunk_size: int, is_reversed: bool) -> None:
    found = dict(numbers_of(chunk_size, is_reversed=is_reversed))
    ddls = {ts: number for ts, is_ddl, number in found["wire/0"] if is_ddl}
    assert len(ddls) > 25
    for part, told in found.items():
        for ts, is_ddl, number in told:
            for ddl_ts, ddl in ddls.items():
                if not is_ddl:
                    assert (number < ddl) == (ts < ddl_ts), (part, ts, ddl_ts)
