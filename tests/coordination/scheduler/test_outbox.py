"""What waits for a peer, and how it looks on its way."""

from __future__ import annotations

import pytest

from coordination.scheduler import transport
from coordination.scheduler.messages import MalformedMessage
from coordination.scheduler.transport import (
    Batch,
    Frame,
    Outbox,
    dump_answer,
    dump_batch,
    load_answer,
    load_batch,
)
from tests.contracts.transport_contract import A, B


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {
        "MAX_BATCH_COUNT": 4, "MAX_BATCH_BYTES": 10, "MAX_OUTBOX_COUNT": 6, "MAX_OUTBOX_BYTES": 30,
    }  # fmt: skip
    for name, limit in limits.items():
        monkeypatch.setattr(transport, name, limit)


def outbox(*offered: bytes) -> Outbox:
    made = Outbox(1, 0.0)
    for data in offered:
        made.offer(data, 0.0)
    return made


class TestOutbox:
    def test_the_oldest_without_a_number_goes_first(self) -> None:
        made = outbox(b"d1", b"d2", b"d3", b"d4", b"d5")
        assert [f.data for f in made.take_batch()] == [b"d1", b"d2", b"d3", b"d4"]
        for data in (b"d6", b"d7", b"d8"):
            made.offer(data, 0.0)
        made.failed(0.0)
        assert [f.data for f in made.take_batch()] == [b"d1", b"d2", b"d3", b"d4"]
        made.answered(4, 0.0)
        assert made.take_batch() == (Frame(5, b"d7"), Frame(6, b"d8"))

    def test_bytes_are_bounded_and_come_back(self) -> None:
        made = outbox(*[b"h" * 9] * 5)
        assert (made.size, len(made.waiting)) == (27, 3)
        made.offer(b"d" * 31, 0.0)
        assert (made.size, len(made.waiting)) == (0, 0)

    def test_batches_are_small_and_a_large_message_goes_alone(self) -> None:
        made = outbox(b"d" * 24, b"d1", b"d2", b"d3")
        sizes = []
        while made.due_s is not None:
            frames = made.take_batch()
            sizes.append([len(frame.data) for frame in frames])
            made.answered(frames[-1].number, 0.0)
        assert sizes == [[24], [2, 2, 2]]
        assert made.size == 0

    def test_one_batch_at_a_time(self) -> None:
        made = outbox(b"d1")
        assert made.take_batch()
        made.offer(b"d2", 0.0)
        assert made.due_s is None
        made.answered(1, 100.0)
        assert made.due_s == 100.0
        assert made.take_batch() == (Frame(2, b"d2"),)

    def test_pauses_double_to_a_limit_and_end_with_progress(self) -> None:
        made, now_s, pauses = outbox(b"d1", b"d2"), 0.0, []
        for _ in range(7):
            made.take_batch()
            made.failed(now_s)
            assert made.due_s is not None
            pauses.append(made.due_s - now_s)
            now_s = made.due_s
        assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
        made.take_batch()
        made.answered(1, now_s)  # the second was lost on its way: at once again
        assert made.due_s == now_s
        assert made.take_batch() == (Frame(2, b"d2"),)
        made.answered(1, now_s)  # again: after a pause
        assert made.due_s == pytest.approx(now_s + 0.05)


class TestBytes:
    BATCH = Batch(
        sender=A, address="h:1", to=B, session=3, base=7, frames=(Frame(7, b"x\n"), Frame(9, b""))
    )

    def test_round_trips(self) -> None:
        assert load_batch(dump_batch(self.BATCH)) == self.BATCH
        for received in (9, None):
            assert load_answer(dump_answer(received)) == received

    def test_as_captures_of_before_wrote_them(self) -> None:
        assert dump_answer(9) == b'{"received": 9}'
        assert dump_answer(None) == b'{"rejected": true}'
        header, _, frames = dump_batch(self.BATCH).partition(b"\n")
        assert header == (
            b'{"session":3,"from":"capture-a","address":"h:1","to":"capture-b","base":7}'
        )
        numbers = (b"\0\0\0\0\0\0\0\x07", b"\0\0\0\0\0\0\0\x09")
        assert frames == numbers[0] + b"\0\0\0\x02x\n" + numbers[1] + b"\0\0\0\0"

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
