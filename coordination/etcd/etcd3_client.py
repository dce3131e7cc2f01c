"""EtcdClient by the gRPC stubs of python3-etcd3: the one file that imports that package.

It uses the package's stubs and not its client class, whose faults are (measured, 0.13):
`transaction()` hides the revision, `max_create_revision` is sent as something else, a broken watch
stream dies with a NameError in its thread, and an endpoint that failed once is refused for 300 s.
"""

from __future__ import annotations

from coordination.etcd import grpc_environment  # noqa: F401 - before anything imports grpc

# isort: split

import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import grpc
from etcd3 import etcdrpc

from conf.settings import EtcdSettings
from coordination.errors import ConfigError, LeaseGone, Stop, TidelakeError, TryAgain
from coordination.etcd import endpoints
from coordination.etcd.client import (
    NO_LEASE,
    NOW,
    Compare,
    Delete,
    EtcdClient,
    Keys,
    KeyValue,
    Lease,
    Op,
    Put,
    RangeResult,
    TxnResult,
    WatchBatch,
    WatchEvent,
    prefix_end,
)
from coordination.etcd.watch_stream import FollowedWatch
from coordination.model import LeaseID, Revision
from coordination.secrets import revealed

logger = logging.getLogger(__name__)

TIMEOUT_S: Final = 3.0  # of one call: under a third of the default TTL, so that two tries fit in
CONNECT_TIMEOUT_S: Final = 5.0
SILENCE_S: Final = 10.0  # a watch that received nothing for so long is made again, as in TiCDC
RECONNECT_S: Final = 0.5
FULL: Final = (
    "Its database is full: etcdctl compact, etcdctl defrag and then etcdctl alarm disarm, or a "
    "larger --quota-backend-bytes"
)
TRY_AGAIN: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.RESOURCE_EXHAUSTED,  # too many requests, or no space: both may pass
    }
)
_TARGETS: Final = {
    "create": (etcdrpc.Compare.CREATE, "create_revision"),
    "mod": (etcdrpc.Compare.MOD, "mod_revision"),
    "value": (etcdrpc.Compare.VALUE, "value"),
}


def connect(settings: EtcdSettings) -> EtcdClient:
    """Return a client whose first call to etcd succeeded. Blocks for about 5 s at most. Raises
    TidelakeError if etcd does not answer by then, ConfigError if it refuses us."""
    if (settings.user is None) != (settings.password is None):
        raise ConfigError("etcd: user and password must be given together")
    client = Etcd3Client(
        endpoints.targets(settings.endpoints),
        credentials=endpoints.credentials(settings),
        user=None if settings.user is None else revealed("etcd-user", settings.user),
        password=None
        if settings.password is None
        else revealed("etcd-password", settings.password),
    )
    where = ", ".join(settings.endpoints)
    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    while True:
        try:
            client.cluster_id()
        except TryAgain as error:
            if time.monotonic() + RECONNECT_S + TIMEOUT_S / 2 > deadline:
                client.close()
                raise TidelakeError(
                    f"etcd at {where} does not answer: {error}; is it running, and is --etcd right?"
                ) from None
            time.sleep(RECONNECT_S)
        except Stop:  # a signal, not etcd
            client.close()
            raise
        except TidelakeError as error:
            client.close()
            raise ConfigError(f"etcd at {where} refused us: {error}") from None
        else:
            return client


class Etcd3Client:
    """One channel per endpoint; when the current endpoint does not answer, calls go to the next."""

    def __init__(
        self,
        targets: Sequence[str],
        *,
        credentials: grpc.ChannelCredentials | None = None,
        user: str | None = None,
        password: str | None = None,
        timeout_s: float = TIMEOUT_S,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._channels = [endpoints.channel(target, credentials) for target in targets]
        self._targets = tuple(targets)
        self.endpoint = 0  # the present one
        self._login = (user, password) if user else None
        self._token: str | None = None
        self._timeout_s = timeout_s
        self._silence_s = silence_s
        self._watches: set[FollowedWatch] = set()
        self._closed = False

    def cluster_id(self) -> str:
        reply = self._call("Maintenance", "Status", etcdrpc.StatusRequest())
        return f"{reply.header.cluster_id:x}"

    def range(self, key: Keys, *, prefix: bool = False) -> RangeResult:
        if isinstance(key, str):
            reply = self._call("KV", "Range", _range(key, prefix))
            found = [reply]
        else:
            ops = [etcdrpc.RequestOp(request_range=_range(each, prefix)) for each in sorted(key)]
            reply = self._call("KV", "Txn", etcdrpc.TxnRequest(success=ops))
            found = [each.response_range for each in reply.responses]
        return RangeResult(
            revision=Revision(reply.header.revision),
            kvs=tuple(_key_value(kv) for each in found for kv in each.kvs),
        )

    def put(self, key: str, value: bytes, lease: LeaseID = NO_LEASE) -> Revision:
        reply = self._call("KV", "Put", _put(Put(key, value, lease)))
        return Revision(reply.header.revision)

    def txn(self, compares: Sequence[Compare], then: Sequence[Op]) -> TxnResult:
        request = etcdrpc.TxnRequest(
            compare=[_compare(compare) for compare in compares],
            success=[_op(op) for op in then],
        )
        reply = self._call("KV", "Txn", request)
        return TxnResult(reply.succeeded, Revision(reply.header.revision))

    def grant(self, ttl_s: int) -> Lease:
        reply = self._call("Lease", "LeaseGrant", etcdrpc.LeaseGrantRequest(TTL=ttl_s))
        return Lease(LeaseID(reply.ID), reply.TTL)

    def keep_alive(self, lease: LeaseID, *, timeout_s: float) -> int:
        # A stream for this one request: the deadline bounds it, and renewals share no state.
        request = etcdrpc.LeaseKeepAliveRequest(ID=lease)
        reply = self._call("Lease", "LeaseKeepAlive", request, timeout_s=timeout_s, stream=True)
        return max(0, int(reply.TTL))

    def revoke(self, lease: LeaseID) -> None:
        with suppress(LeaseGone):
            self._call("Lease", "LeaseRevoke", etcdrpc.LeaseRevokeRequest(ID=lease))

    def watch(
        self,
        key: Keys,
        callback: Callable[[WatchBatch], None],
        *,
        prefix: bool = False,
        start_revision: Revision = NOW,
    ) -> FollowedWatch:
        watch = FollowedWatch(
            self,
            (key,) if isinstance(key, str) else key,
            callback,
            prefix=prefix,
            start_revision=start_revision,
            silence_s=self._silence_s,
        )
        self._watches.add(watch)
        watch.start()
        return watch

    def compact(self, revision: Revision) -> None:
        """Delete the history before the revision. For tests and upkeep; not part of the port."""
        self._call("KV", "Compact", etcdrpc.CompactionRequest(revision=revision, physical=True))

    def close(self) -> None:
        self._closed = True
        for watch in tuple(self._watches):
            watch.cancel()
        for channel in self._channels:
            channel.close()

    def watch_create(self, key: str, prefix: bool, start_revision: Revision) -> Any:
        create = etcdrpc.WatchCreateRequest(key=key.encode(), start_revision=start_revision)
        if prefix:
            create.range_end = prefix_end(key)
        return etcdrpc.WatchRequest(create_request=create)

    def watch_progress(self) -> Any:
        return etcdrpc.WatchRequest(progress_request=etcdrpc.WatchProgressRequest())

    def watch_event(self, event: Any) -> WatchEvent:
        return WatchEvent("delete" if event.type else "put", _key_value(event.kv))

    def open_watch(self, requests: Iterator[Any], endpoint: int) -> Any:
        """Open the raw gRPC stream of a watch."""
        stub = etcdrpc.WatchStub(self._channels[endpoint])
        return stub.Watch(requests, metadata=self._metadata(endpoint))

    def forget_watch(self, watch: FollowedWatch) -> None:
        self._watches.discard(watch)

    def leave_endpoint(self, endpoint: int) -> None:
        """The endpoint has failed: calls go to the next one. If several calls fail there at one
        moment, only the first changes the endpoint. Otherwise the second would change it back."""
        if self.endpoint == endpoint:
            self.endpoint = (endpoint + 1) % len(self._channels)

    def _call(
        self, service: str, method: str, request: Any, *, timeout_s: float = 0, stream: bool = False
    ) -> Any:
        timeout_s = timeout_s or self._timeout_s
        for attempt in (1, 2):
            endpoint = self.endpoint
            try:
                return self._send(
                    endpoint, service, method, request, timeout_s=timeout_s, stream=stream
                )
            except grpc.RpcError as error:
                if attempt == 1 and self._login and _token_is_stale(error):
                    self._token = None  # etcd forgets tokens at restart and after 5 minutes
                    continue
                raise self._translated(error, endpoint) from None
            except ValueError as error:  # grpc: "Cannot invoke RPC on closed channel!"
                raise TryAgain(f"the connection to etcd is closed ({error})") from None
        raise AssertionError("unreachable")

    def _send(
        self,
        endpoint: int,
        service: str,
        method: str,
        request: Any,
        *,
        timeout_s: float,
        stream: bool,
    ) -> Any:
        stub = getattr(etcdrpc, f"{service}Stub")(self._channels[endpoint])
        send = getattr(stub, method)
        metadata = self._metadata(endpoint)
        if not stream:
            return send(request, timeout_s, metadata=metadata)
        replies = send(iter((request,)), timeout_s, metadata=metadata)
        try:
            return next(replies)
        except StopIteration:
            raise TryAgain("etcd ended the stream without an answer") from None

    def _metadata(self, endpoint: int) -> tuple[tuple[str, str], ...]:
        if self._login is None:
            return ()
        if self._token is None:
            name, password = self._login
            request = etcdrpc.AuthenticateRequest(name=name, password=password)
            stub = etcdrpc.AuthStub(self._channels[endpoint])
            self._token = stub.Authenticate(request, self._timeout_s).token
        return (("token", self._token),)

    def _translated(self, error: Any, endpoint: int) -> TidelakeError:
        code, details = error.code(), error.details() or ""
        if "requested lease not found" in details:
            return LeaseGone("the lease has expired or was revoked")
        if code in TRY_AGAIN:
            where = self._targets[endpoint]
            self.leave_endpoint(endpoint)
            way_out = f". {FULL}" if "database space exceeded" in details else ""
            return TryAgain(f"etcd at {where}: {code.name.lower()} ({details}){way_out}")
        return TidelakeError(f"etcd refused the request: {code.name.lower()} ({details})")


def _token_is_stale(error: Any) -> bool:
    """Etcd does not know it any more; or users and roles have changed since: a token of type JWT
    names their revision. (etcd calls it "in header", from 3.5.5 on "of auth store".)"""
    is_unknown = error.code() == grpc.StatusCode.UNAUTHENTICATED
    is_old = re.search(r"revision (in header|of auth store) is old", error.details() or "")
    return is_unknown or is_old is not None


def _range(key: str, prefix: bool) -> Any:
    request = etcdrpc.RangeRequest(key=key.encode())
    if prefix:
        request.range_end = prefix_end(key)
    return request


def _put(op: Put) -> Any:
    return etcdrpc.PutRequest(key=op.key.encode(), value=op.value, lease=op.lease)


def _op(op: Op) -> Any:
    match op:
        case Put():
            return etcdrpc.RequestOp(request_put=_put(op))
        case Delete():
            request = etcdrpc.DeleteRangeRequest(key=op.key.encode())
            return etcdrpc.RequestOp(request_delete_range=request)


def _compare(compare: Compare) -> Any:
    target, field = _TARGETS[compare.target]
    return etcdrpc.Compare(
        key=compare.key.encode(),
        target=target,
        result=etcdrpc.Compare.EQUAL,
        **{field: compare.operand},
    )


def _key_value(kv: Any) -> KeyValue:
    return KeyValue(
        key=kv.key.decode(errors="surrogateescape"),
        value=kv.value,
        create_revision=Revision(kv.create_revision),
        mod_revision=Revision(kv.mod_revision),
        lease=LeaseID(kv.lease),
    )
