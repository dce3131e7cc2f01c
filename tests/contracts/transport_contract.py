"""What every Transport does, shown with messages about workers."""

from __future__ import annotations

from collections.abc import Callable

from coordination.jobmaster.messages import QueryStatus, WorkerMessage
from coordination.model import CaptureID, JobID, TaskID, WorkerID
from coordination.transport.transport import Transport

A, B, LATER_B = CaptureID("a"), CaptureID("b"), CaptureID("b-2")


def message(number: int, *, sender: CaptureID = A, to: CaptureID = B) -> WorkerMessage:
    query = QueryStatus(task_id=TaskID("t"), worker_id=WorkerID(number))
    return WorkerMessage(sender=sender, to=to, job_id=JobID("copy"), body=query)


class TransportContract:
    """A subclass has fixtures `one` and `other`: the transports of two captures that reach each
    other;
    and `settled`, which returns when what was sent has arrived."""

    def test_messages_of_one_peer_arrive_in_their_order(
        self, one: Transport, other: Transport, settled: Callable[[], None]
    ) -> None:
        one.set_self(A)
        other.set_self(B)
        sent = [message(number) for number in range(5)]
        one.send(sent[:2])
        one.send(sent[2:])
        settled()
        assert other.receive() == sent
        assert other.receive() == []

    def test_a_capture_hears_itself(self, one: Transport, settled: Callable[[], None]) -> None:
        one.set_self(A)
        one.send([message(1, to=A)])
        settled()
        assert one.receive() == [message(1, to=A)]

    def test_what_is_for_a_former_id_is_dropped(
        self, one: Transport, other: Transport, settled: Callable[[], None]
    ) -> None:
        one.set_self(A)
        other.set_self(B)
        one.send([message(1)])
        settled()
        other.set_self(LATER_B)
        one.send([message(2)])
        settled()
        assert other.receive() == []
        one.send([message(3, to=LATER_B)])
        settled()
        assert other.receive() == [message(3, to=LATER_B)]

    def test_what_a_former_self_sends_is_dropped(
        self, one: Transport, other: Transport, settled: Callable[[], None]
    ) -> None:
        one.set_self(CaptureID("a-2"))
        other.set_self(B)
        one.send([message(1)])
        settled()
        assert other.receive() == []

    def test_nobody_is_needed_to_send_to(self, one: Transport, other: Transport) -> None:
        one.set_self(A)
        one.send([message(1)])
        other.close()
        other.close()
        one.send([message(2)])
        assert one.receive() == []
