"""Short ways to write what etcd tells and what a reactor wants."""

from __future__ import annotations

from coordination.etcd.client import KeyValue, RangeResult, WatchEvent
from coordination.model import Revision
from coordination.orchestrator.transaction import Patch, PatchGroup

ROOT = "/tidb/cdc/test/"
COUNTER = ROOT + "__cdc_meta__/meta/ticdc-delete-etcd-key-count"


def kv(key: str, value: bytes, mod: int, create: int | None = None) -> KeyValue:
    return KeyValue(
        key=key,
        value=value,
        create_revision=Revision(mod if create is None else create),
        mod_revision=Revision(mod),
    )


def found(revision: int, *kvs: KeyValue) -> RangeResult:
    return RangeResult(revision=Revision(revision), kvs=kvs)


def put(key: str, value: bytes, mod: int, create: int | None = None) -> WatchEvent:
    return WatchEvent("put", kv(key, value, mod, create))


def gone(key: str, mod: int) -> WatchEvent:
    return WatchEvent("delete", kv(key, b"", mod, 0))


def becomes(key: str, value: bytes | None) -> Patch:
    """Whatever it was."""
    return Patch(key, lambda _old: value)


def adds(key: str, amount: int) -> Patch:
    """Relative to what it was: doing it twice shows."""
    return Patch(key, lambda old: str(int(old or b"0") + amount).encode())


def group(*patches: Patch) -> PatchGroup:
    return patches
