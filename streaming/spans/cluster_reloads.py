"""Orders to load a table anew (`tidelake table reload`), carried out by a cluster's leader for the
changefeeds of databases: those of tasks and others.

    ordered ─► "copying" is noted ─► the changefeed is paused in etcd ─► all captures leave it
    ─► copy, one commit (`copies/reload.py`) ─► resumed ─► "done" is noted

Whatever dies, the next leader finds the order as it was noted, and goes on. A changefeed that was
paused before its order began is an operator's: its order waits for the resumption. Captures that
still write one of its tables meet the new shape in their commit, which is refused.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from conf.settings import Changefeed
from conf.sources.binlog_uri import BinlogSettings
from coordination.errors import ConfigError, Stop, TidelakeError
from coordination.etcd.client import EtcdClient
from coordination.etcd.keys import ChangefeedName
from coordination.metadata.changefeed_operator import ChangefeedOperator
from coordination.metadata.changefeed_state import ChangefeedReactorState
from coordination.metadata.feed_state import known_state
from coordination.metadata.lookup import find_changefeed, read_changefeeds
from coordination.metadata.records import FeedState
from sinks.control.warehouse import ControlTables
from streaming.changefeed.settings_in_etcd import changefeed_settings
from streaming.spans.copies.reload import TableReloads
from streaming.spans.task_checkpoints import Staging

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 3.0
_RUNS: Final = (FeedState.NORMAL, FeedState.WARNING, FeedState.PENDING)
_OVER: Final = (FeedState.FINISHED, FeedState.REMOVED)


class ClusterReloads:
    """For one leadership, on a thread of its own: one order after the other."""

    def __init__(
        self, client: EtcdClient, cluster_id: str, staging: Staging, *, trusted: Callable[[], None]
    ) -> None:
        """``trusted`` is called before anything is written; it raises without trust."""
        self._client = client
        self._cluster_id = cluster_id
        self._operator = ChangefeedOperator(client, cluster_id)
        self._staging = staging
        self._trusted = trusted
        self._over = threading.Event()
        self._told: dict[ChangefeedName, str] = {}
        self._thread = threading.Thread(target=self._run, name="cluster-reloads", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Begin to end: it begins no commit any more."""
        self._over.set()

    def _check(self) -> None:
        if self._over.is_set():
            raise Stop("this capture does not lead any more")
        self._trusted()

    def _run(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            try:
                found = read_changefeeds(self._client, self._cluster_id)
            except TidelakeError as error:  # the leader meets it too, and says so
                logger.debug("orders of reloads are not looked for: %s", error)
                continue
            except Exception:
                logger.exception("orders of reloads cannot be looked for")
                continue
            for each in found:
                self._tend(each)

    def _tend(self, found: ChangefeedReactorState) -> None:
        try:
            self._check()
            self._look(found)
        except Stop:
            return
        except TidelakeError as error:
            if self._is_news(found.name, error):
                logger.info("a reload waits changefeed_id=%s: %s", found.name.id, error)
        except Exception as error:  # the next look tries again
            if self._is_news(found.name, error):
                logger.exception("a reload has failed changefeed_id=%s", found.name.id)
        else:
            self._told.pop(found.name, None)

    def _is_news(self, name: ChangefeedName, error: Exception) -> bool:
        before, self._told[name] = self._told.get(name), repr(error)
        return before != repr(error)

    def _look(self, found: ChangefeedReactorState) -> None:
        info, state = found.known_info, known_state(found.known_info)
        if state in _OVER:
            return
        try:
            changefeed = changefeed_settings(info)
        except ConfigError:  # it has failed the changefeed
            return
        if not isinstance(changefeed.source, BinlogSettings):
            return
        reloads = ControlTables.of(changefeed.sink).reloads
        order = reloads.next_open(changefeed.id)
        if order is None or (order.state == "ordered" and state is FeedState.STOPPED):
            return
        if order.state == "ordered":
            reloads.note(replace(order, state="copying"))
        if state in _RUNS:
            logger.info(
                "pauses the changefeed, since a table is to be loaded anew changefeed_id=%s "
                "table=%s",
                *(changefeed.id, order.name),
            )
            self._check()
            self._operator.pause(found.name)
        TableReloads(
            changefeed,
            self._staging(changefeed),
            is_stopped=self._over.is_set,
            check=self._check,
            go_on=lambda: self._go_on(found.name),
            has_ended_here=False,
        ).run_next()  # which resumes the changefeed: it is paused again for another order

    def _go_on(self, name: ChangefeedName) -> None:
        self._check()
        found = find_changefeed(self._client, self._cluster_id, name)
        if found is None:
            return  # an operator has removed it: the order is over too
        if known_state(found.known_info) in (FeedState.STOPPED, FeedState.FAILED):
            self._operator.resume(name)


def is_reloading(changefeed: Changefeed) -> bool:
    """Whether the leader has begun with an order, and so pauses and resumes the changefeed."""
    order = ControlTables.of(changefeed.sink).reloads.next_open(changefeed.id)
    return order is not None and order.state != "ordered"
