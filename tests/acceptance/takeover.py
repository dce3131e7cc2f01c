"""One capture takes over from another that sleeps."""

from __future__ import annotations

import signal

from tests.acceptance.processes import Life, Stage, await_, field


def sleep_through_a_takeover(stage: Stage, owner: Life, heir: Life, *, wins: int) -> None:
    """The owner freezes itself before a commit; awake again it dies, and is back as another one."""
    await_(f"{owner.name} stops itself before a commit", lambda: owner.is_frozen)
    await_takeover(stage, heir, wins=wins)
    wake(owner, deaths=1, group=False)


def freeze_through_a_takeover(stage: Stage, owner: Life, heir: Life, *, wins: int) -> None:
    """The same, wherever the owner is just then: all of it is frozen from outside."""
    owner.signal(signal.SIGSTOP, group=True)
    await_takeover(stage, heir, wins=wins)
    wake(owner, deaths=1, group=True)


def await_takeover(stage: Stage, heir: Life, *, wins: int) -> None:
    """The heir owns the changefeed and has moved it on."""
    heir.await_line("capture leads", nth=wins)
    stage.await_progress(heir)


def wake(zombie: Life, *, deaths: int, group: bool) -> None:
    """SIGCONT: it says that it dies, and comes back as another one."""
    zombie.signal(signal.SIGCONT, group=group)
    died = zombie.await_line("capture dies by suicide", nth=deaths)
    back = zombie.await_line("capture starts", nth=deaths + 1)
    assert field(died, "capture_id") != field(back, "capture_id")
    assert field(died, "epoch") != field(back, "epoch")
