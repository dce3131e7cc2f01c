"""A capture with a fake replication, run in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from conf.settings import EtcdSettings, SessionSettings
from coordination.capture import Capture
from coordination.clock import SystemClock
from coordination.etcd.client import EtcdClient
from coordination.fence import Fence
from coordination.reset_limit import ResetLimit
from tests.fakes.fake_replication import FakeReplication

SHORT = SessionSettings(ttl_s=2, safety_margin_s=0.5)  # 2 s is the least that etcd grants
CALM = SessionSettings(ttl_s=5, safety_margin_s=1.0)  # for outages that must not matter


class RunningCapture:
    """A context manager: leaves by `stop`, which must always succeed."""

    def __init__(
        self,
        client: EtcdClient,
        *,
        cluster_id: str = "test",
        session: SessionSettings = SHORT,
        warehouse: str = "",
        reset_limit: ResetLimit | None = None,
        admitted: Callable[[], None] = lambda: None,
    ) -> None:
        clock = SystemClock()
        self.fence = Fence(clock)
        self.replication = FakeReplication(self.fence)
        self.error: BaseException | None = None
        self.stands_by = threading.Event()
        self.capture = Capture(
            client=client,
            etcd=EtcdSettings(cluster_id=cluster_id),
            session=session,
            changefeed_id="shop",
            replication=self.replication,
            fence=self.fence,
            clock=clock,
            address="127.0.0.1:8300",
            warehouse=warehouse,
            reset_limit=reset_limit or ResetLimit(interval_s=0.0, burst=1),
            admitted=admitted,
            on_standby=self.stands_by.set,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> RunningCapture:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        assert not self.replication.is_running

    @property
    def trusted_until(self) -> float | None:
        """None while the fence is shut."""
        return getattr(self.fence._state, "trusted_until", None)

    def await_renewal(self) -> None:
        """Until a keep-alive that begins from now on has been answered."""
        deadline = time.monotonic() + 15
        before = self.trusted_until
        while before is not None and self.trusted_until == before:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def stop(self) -> None:
        self.capture.request_stop()
        self.join()

    def join(self, timeout_s: float = 15.0) -> None:
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), "run does not return"

    @property
    def has_returned(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.capture.run()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self.error = error
