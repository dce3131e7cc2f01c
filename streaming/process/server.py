"""Start of `tidelake server`: builds etcd client, Spark, gRPC and capture, and starts and ends them
in order."""

from __future__ import annotations

import logging
from concurrent.futures import TimeoutError as NoAnswer
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

from conf.settings import CaptureSettings
from coordination.capture.capture import Capture
from coordination.capture.context import CaptureContext
from coordination.capture.owner.operator_jobs import JobContext, OwnerJob
from coordination.capture.server import CaptureServer
from coordination.errors import ConfigError, TidelakeError, TryAgain
from coordination.etcd.keys import ChangefeedName
from coordination.model import CaptureID, ChangefeedID, JobID, Revision, TableName
from coordination.transport.grpc_calls import CallRefused, check_free
from coordination.transport.grpc_transport import GrpcTransport
from coordination.trust.clock import SystemClock
from coordination.trust.fence import Fence
from coordination.trust.watchdog import Watchdog
from streaming.changefeed.admission import refuse_beside_other_versions
from streaming.jobs.on_spark import SparkOfProcess
from streaming.process import logs
from streaming.process.data_plane import JVM_ENDED, SparkDataPlane
from streaming.process.run import connected_etcd
from streaming.process.signals import asking, handling, stop_before_start
from streaming.spark.session import SparkOnDemand
from streaming.spark.temporary_folder import scratch

logger = logging.getLogger(__name__)

SERVE_AGAIN: Final = "serve-again"
ANSWER_S: Final = 8.0  # less than a caller waits for the answer


def serve(settings: CaptureSettings) -> int:
    """Be a capture of the cluster until asked to stop; returns the exit code."""
    with ExitStack() as stack:
        stack.enter_context(handling(stop_before_start))
        stack.enter_context(scratch())
        check_free(settings.transport.addr)  # before Spark's start, which takes seconds
        etcd, client = stack.enter_context(connected_etcd(settings.etcd))
        if settings.etcd.embedded:
            logger.warning(
                "no --etcd was given, so this server has one of its own: reach it by --etcd %s "
                "from this machine alone; its changefeeds are forgotten when the server ends",
                etcd.endpoints[0],
            )
        spark = SparkOnDemand()
        stack.callback(spark.stop)
        spark()  # start it now, so that an error in its setup is seen at once
        clock = SystemClock()
        running: list[CaptureServer] = []  # the transport and the server need each other
        ended: list[TidelakeError] = []

        def end(error: TidelakeError) -> None:
            """End in order, so that other captures take the spans. Where a stop was asked for
            already, the error comes of that stop."""
            if running and not running[0].is_stopping:
                ended.append(error)
                running[0].request_stop()

        def admit(_capture_id: CaptureID, registered: Revision) -> bool:
            try:
                refuse_beside_other_versions(client, etcd.cluster_id, registered)
            except ConfigError as error:
                end(error)
                return False
            return True

        context = CaptureContext(
            client=client,
            cluster_id=etcd.cluster_id,
            session=settings.session,
            clock=clock,
            fence=Fence(clock),
            transport=(
                transport := GrpcTransport(
                    settings.transport,
                    resolve=lambda each: running[0].address_of(each) if running else None,
                    wake=lambda: running[0].wake() if running else None,
                    handle=lambda method, params: _answer(running[0], method, params),
                )
            ),
            watchdog=(watchdog := Watchdog(clock)),
            data_plane=SparkDataPlane(
                SparkOfProcess(spark),
                batch=settings.batch,
                session=settings.session,
                watchdog=watchdog,
                jobs=(client, etcd.cluster_id),
                jvm_ended=lambda: end(TidelakeError(JVM_ENDED)),
            ),
            address=transport.start(),
            admit=admit,
        )
        stack.callback(transport.close)
        server = CaptureServer(context, on_reset=_identify)
        running.append(server)
        stack.enter_context(handling(asking(server.request_stop)))
        logger.info("serving cluster_id=%s address=%s", etcd.cluster_id, context.address)
        server.run()
        if ended:
            raise ended[0]
    return 0


def _identify(capture: Capture) -> None:
    logs.identity.capture_id = capture.id
    logs.identity.epoch = capture.epoch


def _answer(server: CaptureServer, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Answer a gRPC call: the coordination thread carries it out, this one waits. Raises
    CallRefused, or TryAgain after ``ANSWER_S``."""
    try:
        if method == SERVE_AGAIN:  # a call to any capture; all others are to the owner
            if not isinstance(capture_id := params.get("capture-id"), str):
                raise CallRefused(f"{method}: capture-id is missing")
            answer = server.serve_again(CaptureID(capture_id))
            return {"was-draining": answer.result(ANSWER_S)}
        return server.jobs.post(_job(method, params)).result(ANSWER_S)
    except NoAnswer:
        raise TryAgain(f"the capture gave no answer to {method} in {ANSWER_S:g} s") from None


def _job(method: str, params: dict[str, Any]) -> OwnerJob[dict[str, Any]]:
    """The job for the owner that a call asks for, which returns the call's answer. Raises
    CallRefused for an unknown method or a wrong parameter."""
    try:
        match method:
            case "list-processors":
                wanted = params.get("changefeed-id")
                changefeed = _name(wanted) if wanted else None
                return lambda owner: {"rows": owner.list_processors(changefeed)}
            case "list-tasks":
                job_id = params.get("job-id")
                job = JobID(str(job_id)) if job_id else None
                return lambda owner: {"rows": owner.list_tasks(job)}
            case "drain-capture":
                capture_id = CaptureID(params["capture-id"])
                return partial(_drained, capture_id=capture_id)
            case "keep-capture":
                return _done(partial(JobContext.keep, capture_id=CaptureID(params["capture-id"])))
            case "rebalance":
                name = _name(params["changefeed-id"])
                return _done(partial(JobContext.rebalance, changefeed=name))
            case "move-table":
                changefeed = _name(params["changefeed-id"])
                table = TableName(*params["table"].split(".", 1))
                dest = CaptureID(params["capture-id"])
                return lambda owner: {"from": owner.move_table(changefeed, table, dest)}
    except (KeyError, TypeError, AttributeError) as error:
        raise CallRefused(f"{method}: a parameter is missing or wrong: {error}") from None
    raise CallRefused(f"unknown method {method!r}")


def _drained(owner: JobContext, capture_id: CaptureID) -> dict[str, Any]:
    left = owner.drain(capture_id)
    return {"remaining": left, "unknown": owner.why_unknown(capture_id) if left else ""}


def _done(job: OwnerJob[None]) -> OwnerJob[dict[str, Any]]:
    """The job with an empty answer."""

    def carry_out(owner: JobContext) -> dict[str, Any]:
        job(owner)
        return {}

    return carry_out


def _name(changefeed_id: str) -> ChangefeedName:
    return ChangefeedName(ChangefeedID(changefeed_id))
