"""An owner whose messages a test chooses, for one agent."""

from __future__ import annotations

from coordination.model import CaptureID, ProcessorEpoch, Ts
from coordination.scheduler.agent import Agent
from coordination.scheduler.messages import (
    AddTable,
    Body,
    Checkpoint,
    Heartbeat,
    HeartbeatResponse,
    Message,
    RemoveTable,
)
from tests.coordination.scheduler.cluster import CHANGEFEED_EPOCH, FEED, make_agent, span
from tests.coordination.scheduler.fake_executor import FakeExecutor

Outbox = tuple[Message, ...]


class Owner:
    """Says things to one agent."""

    def __init__(self, name: str = "owner", launch: int = 5) -> None:
        self.id, self.launch = CaptureID(name), launch
        self.fence = launch << 32

    def says(self, agent: Agent, body: Body, epoch: str | None = None) -> Message:
        return Message(
            version="9.9.9",
            launch=self.launch,
            processor_epoch=agent.epoch if epoch is None else ProcessorEpoch(epoch),
            changefeed_epoch=CHANGEFEED_EPOCH,
            sender=self.id,
            to=agent.capture_id,
            changefeed_id=FEED,
            body=body,
        )

    def adds(self, agent: Agent, table: int = 1, *, is_secondary: bool) -> Message:
        self.fence += 1
        return self.says(
            agent,
            AddTable(
                span=span(table),
                is_secondary=is_secondary,
                checkpoint=Checkpoint(Ts(50), Ts(50)),
                fence=self.fence,
            ),
        )

    def removes(self, agent: Agent, table: int = 1) -> Message:
        return self.says(agent, RemoveTable(table_id=table, fence=self.fence))


def followed(*, is_eager: bool = True) -> tuple[Agent, FakeExecutor, Owner]:
    """An agent that has an owner already."""
    executor, owner = FakeExecutor(is_eager=is_eager), Owner()
    agent = make_agent("c", executor)
    agent.tick([owner.says(agent, Heartbeat(), epoch="")])
    return agent, executor, owner


def replicating(agent: Agent, owner: Owner, table: int = 1) -> None:
    agent.tick([owner.adds(agent, table, is_secondary=True)])
    agent.tick([owner.adds(agent, table, is_secondary=False)])


def response(outbox: Outbox) -> HeartbeatResponse:
    (body,) = [m.body for m in outbox if isinstance(m.body, HeartbeatResponse)]
    return body
