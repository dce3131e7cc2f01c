"""Captures and their tables: requests to the owner of a cluster that have no key in etcd
(docs/cluster.md 15)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from conf.problems import SettingError
from coordination.errors import NotInTime, TryAgain
from coordination.etcd.client import EtcdClient
from coordination.metadata.errors import CaptureNotFound, OwnerNotFound
from coordination.metadata.lookup import read_captures, read_controller
from coordination.model import CaptureID, CaptureInfo, TableName
from coordination.transport.grpc_calls import CallRefused
from streaming.operations.changed import CHANGED, between
from streaming.operations.owner_calls import OwnerCalls

ShownRow = Mapping[str, Any]
RECALLS: Final = 5  # so often at most a drain is taken back, until there is none to take back
AGAIN_S: Final = 0.5


class CaptureOperations:
    """All block, and raise TidelakeErrors; while the owner changes they wait for the next one."""

    def __init__(self, client: EtcdClient, cluster_id: str, calls: OwnerCalls) -> None:
        self._client = client
        self._cluster_id = cluster_id
        self._calls = calls

    def list_captures(self) -> list[ShownRow]:
        owner = None
        with suppress(OwnerNotFound):
            owner = read_controller(self._client, self._cluster_id).id
        found = read_captures(self._client, self._cluster_id)
        if owner is None and found:
            self._calls.say("no capture of the cluster leads at the moment")
        return [
            {
                "capture": each.id,
                "address": each.address,
                "is_owner": each.id == owner,
                "state": _serving(each),
                "version": each.version,
            }
            for each in found
        ]

    def drain(self, capture_id: str) -> list[ShownRow]:
        """Have the owner move a capture's spans to others. Returns how many it still has, None
        while that is not known (`unknown` says why); call again until it is 0."""
        before = self._capture(capture_id)
        return [self._drain(before)]

    def drain_wholly(self, capture_id: str, *, timeout_s: float) -> list[ShownRow]:
        """Drain it and wait until it has no span any more, or has ended. Says how far it is where
        that changes. Raises NotInTime after ``timeout_s``."""
        before, until_s = self._capture(capture_id), time.monotonic() + timeout_s
        said = ""
        while True:
            row = self._drain(before)
            if row["remaining"] == 0:
                return [row]
            left = row["unknown"] or f"capture {capture_id} still has {row['remaining']} tables"
            if time.monotonic() >= until_s:
                late = f"{left}. That is so after {timeout_s:g} s, and it goes on draining"
                raise NotInTime(late, row)
            if left != said:
                self._calls.say(f"waits for up to {until_s - time.monotonic():.0f} s: {left}")
            said = left
            time.sleep(AGAIN_S)

    def _capture(self, capture_id: str) -> CaptureInfo:
        found = read_captures(self._client, self._cluster_id, CaptureID(capture_id))
        if found:
            return found[0]
        read_controller(self._client, self._cluster_id)  # without any capture it says that
        raise CaptureNotFound(f"no capture {capture_id} is registered: see `tidelake capture list`")

    def _drain(self, before: CaptureInfo) -> ShownRow:
        """``before``: the capture as it was at first."""
        remaining: int | None = 0
        state, unknown = "ended", ""
        try:
            found = self._calls.ask("drain-capture", {"capture-id": before.id})
        except CallRefused:
            if read_captures(self._client, self._cluster_id, before.id):
                raise
        else:
            state, unknown = "draining", found.get("unknown", "")
            remaining = None if unknown else found["remaining"]
        row = {"capture": before.id, "state": state, "remaining": remaining, "unknown": unknown}
        return {**row, CHANGED: between({"state": _serving(before)}, {"state": state})}

    def take_back_drain(self, capture_id: str) -> list[ShownRow]:
        """Have the owner stop draining a capture, and the capture serve again. An order of the
        owner that is still under way may drain it once more. So this is repeated until the capture
        answers that it was not draining."""
        before = self._capture(capture_id)
        for _ in range(RECALLS):
            # All may be drained: then nobody leads until one serves again.
            with suppress(OwnerNotFound, TryAgain):
                self._calls.ask("keep-capture", {"capture-id": capture_id}, wait_s=0.0)
            params = {"capture-id": capture_id}
            if not self._calls.call(before.address, "serve-again", params)["was-draining"]:
                break
            time.sleep(AGAIN_S)
        row = {"capture": capture_id, "state": "serving"}
        return [{**row, CHANGED: between({"state": _serving(before)}, row, "state")}]

    def move_table(self, changefeed_id: str, table: str, capture_id: str) -> list[ShownRow]:
        table_name(table)
        params = {"changefeed-id": changefeed_id, "table": table, "capture-id": capture_id}
        moved = {"from": self._calls.ask("move-table", params).get("from"), "to": capture_id}
        changed = {"capture": moved} if moved["from"] != capture_id else {}
        row = {"changefeed": changefeed_id, "table": table, "to": capture_id}
        return [{**row, CHANGED: changed}]

    def rebalance(self, changefeed_id: str) -> list[ShownRow]:
        self._calls.ask("rebalance", {"changefeed-id": changefeed_id})
        return [{"changefeed": changefeed_id, "rebalance": "begun"}]

    def list_processors(self, changefeed_id: str | None) -> list[ShownRow]:
        return list(self._calls.ask("list-processors", {"changefeed-id": changefeed_id})["rows"])


def table_name(text: str) -> TableName:
    """The table of a text ``schema.table``. Raises SettingError."""
    schema, dot, name = text.partition(".")
    if not (schema and dot and name):
        raise SettingError(f"--table {text!r}: expected schema.table")
    return TableName(schema, name)


def _serving(capture: CaptureInfo) -> str:
    return "draining" if capture.is_draining else "serving"
