"""The version of the metadata, which TiCDC's tools look for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from coordination.capture.owner.operator_jobs import OwnerJobs
from coordination.capture.owner.owner import OwnerReactor
from coordination.etcd import keys
from coordination.metadata.global_state import GlobalReactorState


def test_it_is_written_though_etcd_gave_no_answer_to_the_first_transaction() -> None:
    """Whose patches are dropped then (`EtcdWorker`)."""
    role: Any = SimpleNamespace(
        id="c", info=SimpleNamespace(version="dev"), capture=SimpleNamespace(cluster_id="x")
    )
    ownership: Any = None
    nobody: Any = None
    reactor = OwnerReactor(
        role, ownership, OwnerJobs(lambda: None), wake=lambda: None, workers=nobody
    )
    state = GlobalReactorState("x", removal_grace_s=0.0)
    for now_s in (1.0, 2.0):
        reactor.tick(state, now_s)
        ((patch,),) = state.take_patches()
        assert (patch.key, patch.change(None)) == (keys.meta_version_key("x"), keys.META_VERSION)
        assert patch.change(b"2") == b"2"
