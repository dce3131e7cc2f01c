"""A capture with a fake replication, run in a thread."""

from __future__ import annotations

import threading

from conf.settings import EtcdSettings, SessionSettings
from coordination.capture import Capture
from coordination.clock import SystemClock
from coordination.etcd.client import EtcdClient
from coordination.fence import Fence
from coordination.reset_limit import ResetLimit
from tests.fakes.fake_replication import FakeReplication

SHORT = SessionSettings(ttl_s=2, safety_margin_s=0.5)  # 2 s is the least that etcd grants


class RunningCapture:
    """A context manager: leaves by `stop`, which must always succeed."""

    def __init__(
        self,
        client: EtcdClient,
        *,
        cluster_id: str = "test",
        session: SessionSettings = SHORT,
        reset_limit: ResetLimit | None = None,
    ) -> None:
        clock = SystemClock()
        self.fence = Fence(clock)
        self.replication = FakeReplication(self.fence)
        self.error: BaseException | None = None
        self.capture = Capture(
            client=client,
            etcd=EtcdSettings(cluster_id=cluster_id),
            session=session,
            changefeed_id="shop",
            replication=self.replication,
            fence=self.fence,
            clock=clock,
            address="127.0.0.1:8300",
            reset_limit=reset_limit or ResetLimit(interval_s=0.0, burst=1),
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> RunningCapture:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        assert not self.replication.is_running

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
