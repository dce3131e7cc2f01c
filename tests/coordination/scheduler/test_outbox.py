"""What waits for a peer, and how it looks on its way."""

from __future__ import annotations

import pytest

from coordination.scheduler.envelope import (
    Answer,
    Batch,
    Frame,
    dump_answer,
    dump_batch,
    load_answer,
    load_batch,
)
from coordination.scheduler.messages import MalformedMessage
from coordination.scheduler.outbox import Outbox, TransportLimits
from tests.contracts.transport_contract import A, B

SMALL = TransportLimits(
    client_max_batch_count=4,
    client_max_batch_bytes=10,
    client_max_outbox_count=6,
    client_max_outbox_bytes=30,
)


def outbox(*offered: bytes, limits: TransportLimits = SMALL) -> Outbox:
    """Heartbeats begin with an h."""
    made = Outbox(1, limits, 0.0)
    for data in offered:
        made.offer(data, is_heartbeat=data.startswith(b"h"), now_s=0.0)
    return made


class TestOutbox:
    def test_the_oldest_heartbeats_go_first_then_the_oldest(self) -> None:
        made = outbox(b"d1", b"h1", b"d2", b"h2", b"h3", b"d3")
        made.offer(b"d4", is_heartbeat=False, now_s=0.0)
        made.offer(b"d5", is_heartbeat=False, now_s=0.0)
        assert [f.data for f in made.batch(0.0)] == [b"d1", b"d2", b"h3", b"d3"]
        made.answered(4, 0.0)
        assert [f.data for f in made.batch(0.0)] == [b"d4", b"d5"]
        made.answered(6, 0.0)
        for number in range(8):
            made.offer(b"D%d" % number, is_heartbeat=False, now_s=0.0)
        assert made.dropped == 2 + 2
        assert made.batch(0.0)[0].data == b"D2"

    def test_what_has_a_number_is_never_dropped(self) -> None:
        made = outbox(b"h1", b"h2")
        under_way = made.batch(0.0)
        for number in range(20):
            made.offer(b"h%d" % number, is_heartbeat=True, now_s=0.0)
        made.failed(0.0)
        assert made.batch(9.0)[:2] == under_way

    def test_bytes_are_bounded_and_come_back(self) -> None:
        made = outbox(*[b"h" * 9] * 5)
        assert (made.held_bytes, made.dropped, len(made)) == (27, 2, 3)
        made.offer(b"d" * 31, is_heartbeat=False, now_s=0.0)
        assert (made.held_bytes, len(made)) == (0, 0)

    def test_batches_are_small_and_a_large_message_goes_alone(self) -> None:
        made = outbox(b"d" * 24, b"d1", b"d2", b"d3")
        sizes = []
        while frames := made.batch(0.0):
            sizes.append([len(frame.data) for frame in frames])
            made.answered(frames[-1].number, 0.0)
        assert sizes == [[24], [2, 2, 2]]
        assert made.held_bytes == 0

    def test_one_batch_at_a_time(self) -> None:
        made = outbox(b"d1")
        assert made.batch(0.0)
        made.offer(b"d2", is_heartbeat=False, now_s=0.0)
        assert made.due_s is None
        assert made.batch(100.0) == ()
        made.answered(1, 100.0)
        assert made.batch(100.0) == (Frame(2, b"d2"),)

    def test_pauses_double_to_a_limit_and_end_with_progress(self) -> None:
        made, now_s, pauses = outbox(b"d1", b"d2"), 0.0, []
        for _ in range(7):
            made.batch(now_s)
            made.failed(now_s)
            assert made.due_s is not None
            pauses.append(made.due_s - now_s)
            now_s = made.due_s
            assert made.batch(now_s - 0.001) == ()
        assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
        made.batch(now_s)
        made.answered(1, now_s)  # the second was lost on its way: at once again
        assert made.batch(now_s) == (Frame(2, b"d2"),)
        made.answered(1, now_s)  # again: after a pause
        assert made.due_s == pytest.approx(now_s + 0.05)


class TestEnvelope:
    BATCH = Batch(
        sender=A, address="h:1", to=B, session=3, base=7, frames=(Frame(7, b"x\n"), Frame(9, b""))
    )

    def test_round_trips(self) -> None:
        assert load_batch(dump_batch(self.BATCH)) == self.BATCH
        for answer in (Answer(received=9), Answer(is_rejected=True)):
            assert load_answer(dump_answer(answer)) == answer

    def test_every_cut_off_batch_is_malformed(self) -> None:
        data = dump_batch(self.BATCH)
        ends = [data.index(b"\n") + 1]  # a batch may be empty, or end between two messages
        ends += [ends[0] + 12 + 2]
        for end in range(len(data)):
            if end not in ends:
                with pytest.raises(MalformedMessage):
                    load_batch(data[:end])

    @pytest.mark.parametrize("wrong", [b"", b"[]", b"null", b'{"received": "x"}', b"\xff", b"{}"])
    def test_malformed_answers_and_batches(self, wrong: bytes) -> None:
        with pytest.raises(MalformedMessage):
            load_answer(wrong)
        with pytest.raises(MalformedMessage):
            load_batch(wrong + b"\n")
