"""Requests to the owner of a cluster, which may be changing at the moment.

etcd: who leads? ─► ask it ─┬─ an answer
      ▲                     ├─ refused: what was asked cannot be done
      └── half a second ◄───┴─ nobody leads, it does not answer, it is still taking over
                                 └─ for WAIT_S: said why, as an error. Never an empty answer
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from conf.settings import TransportSettings
from coordination.errors import TryAgain
from coordination.etcd.client import EtcdClient
from coordination.metadata.errors import OwnerNotFound
from coordination.metadata.lookup import read_captures, read_controller
from coordination.transport.grpc_calls import Unanswered, call_owner

CALL_S: Final = 10.0
WAIT_S: Final = 20.0  # a killed owner's lease ends (10 s by default), and the next one takes over
AGAIN_S: Final = 0.5


class OwnerCalls:
    """Over one connection to etcd. ``say`` gets a line for the operator, once, when it waits."""

    def __init__(
        self,
        client: EtcdClient,
        cluster_id: str,
        tls: TransportSettings,
        say: Callable[[str], None],
    ) -> None:
        self._client = client
        self._cluster_id = cluster_id
        self._tls = tls
        self.say = say
        self._pause = threading.Event()

    def ask(
        self, method: str, params: Mapping[str, Any], *, wait_s: float = WAIT_S
    ) -> dict[str, Any]:
        """The owner's answer. Blocks. Raises OwnerNotFound where no capture serves at all,
        CallRefused, and TryAgain where there was no answer within ``wait_s``."""
        until_s, is_said = time.monotonic() + wait_s, False
        while True:
            try:
                return self._ask(method, params)
            except Unanswered as error:
                why = str(error)
            if time.monotonic() >= until_s:
                raise TryAgain(f"{why}. That was so for {wait_s:g} s: ask again later")
            if not is_said:
                self.say(f"waits for up to {wait_s:g} s: {why}")
            is_said = True
            self._pause.wait(AGAIN_S)

    def call(self, address: str, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of this capture, whether it leads or not."""
        return call_owner(address, method, params, timeout_s=CALL_S, tls=self._tls)

    def _ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            owner = read_controller(self._client, self._cluster_id)
        except OwnerNotFound as error:
            others = read_captures(self._client, self._cluster_id)
            if not others:
                raise
            names = ", ".join(f"{each.id} at {each.address}" for each in others)
            raise Unanswered(
                f"no capture of the cluster leads at the moment; soon one of these does: {names}"
            ) from error
        try:
            return self.call(owner.address, method, params)
        except Unanswered as error:
            if str(owner.id) in str(error):
                raise
            raise Unanswered(
                f"{error}. Capture {owner.id} leads, as etcd says: where it was killed, its lease "
                "ends soon, and another one leads"
            ) from error
