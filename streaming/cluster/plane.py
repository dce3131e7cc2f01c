"""The data plane of one process: implements ``coordination.ports.DataPlane`` on one Spark session.

A replica and a desk of one changefeed read the topics each for itself: a capture without a span may
own the changefeed, and the other way round."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable

from pyspark.sql import SparkSession

from conf.settings import BatchSettings, SessionSettings, Settings
from coordination.errors import TidelakeError
from coordination.fence import Fence
from coordination.metadata.model import ChangefeedInfo
from coordination.model import ChangefeedID, Ownership, Ts
from coordination.ports import CaptureIdentity, DataPlane, Standing, Wake
from streaming.cluster.changefeed_settings import changefeed_settings
from streaming.cluster.desk import Desk
from streaming.cluster.notices import Notice, Notices
from streaming.cluster.replica import ReplicaOf
from streaming.cluster.trust import Trust
from streaming.cluster.workshop import MessageFormat, Workshop
from streaming.protocols.canal_json_sql import CanalJson, envelope

logger = logging.getLogger(__name__)

CANAL_JSON = MessageFormat(envelope=envelope, make_decoder=CanalJson)


class SparkDataPlane:
    """See the port. What is the same for all changefeeds of a process comes with it."""

    def __init__(
        self,
        spark: SparkSession,
        *,
        batch: BatchSettings,
        session: SessionSettings,
        jvm_ended: Callable[[], None] = lambda: os.kill(os.getpid(), signal.SIGTERM),
    ) -> None:
        """``jvm_ended``: what to do when Spark's JVM is gone; else the process stops in order, and
        its spans go to other captures."""
        self._spark = spark
        self._batch = batch
        self._session = session
        self._jvm_ended = jvm_ended
        self._notices = Notices()

    def open_replica(
        self, info: ChangefeedInfo, identity: CaptureIdentity, fence: Fence, wake: Wake
    ) -> ReplicaOf:
        return ReplicaOf(self._workshop("replica", info, identity, fence, wake))

    def open_desk(
        self,
        *,
        info: ChangefeedInfo,
        identity: CaptureIdentity,
        ownership: Ownership,
        checkpoint_ts: Ts,
        fence: Fence,
        wake: Wake,
    ) -> Desk:
        del checkpoint_ts  # the owner takes the greater of it and what the desk has claimed
        return Desk(self._workshop("desk", info, identity, fence, wake), ownership)

    def show(
        self,
        *,
        info: ChangefeedInfo,
        identity: CaptureIdentity,
        ownership: Ownership,
        fence: Fence,
        standing: Standing,
    ) -> None:
        try:
            changefeed = changefeed_settings(info)
        except TidelakeError as error:  # which is why it has failed: there is no warehouse to tell
            logger.debug("no control tables are known changefeed_id=%s: %s", info.id, error)
            return
        self._notices.put(
            Notice(
                changefeed_id=info.id,
                sink=changefeed.sink,
                ownership=ownership,
                trust=Trust(fence, identity),
                standing=standing,
            )
        )

    def withdraw(self, changefeed_id: ChangefeedID) -> None:
        self._notices.withdraw(changefeed_id)

    def _workshop(
        self, role: str, info: ChangefeedInfo, identity: CaptureIdentity, fence: Fence, wake: Wake
    ) -> Workshop:
        settings = Settings(
            changefeed=changefeed_settings(info), batch=self._batch, session=self._session
        )
        return Workshop(
            settings=settings,
            spark=self._spark,
            message_format=CANAL_JSON,
            identity=identity,
            fence=fence,
            wake=wake,
            role=role,
            start_epoch=info.start_epoch,
            jvm_ended=self._jvm_ended,
        )


def _is_the_port(plane: SparkDataPlane) -> DataPlane:
    """For the type checker alone."""
    return plane
