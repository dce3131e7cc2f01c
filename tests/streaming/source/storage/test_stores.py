"""Folders in Google's and Azure's object stores lead to the same rows as a local one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from conf.masking import masked_uri
from conf.sources.large_messages import parse_large_messages
from conf.sources.source_uri import parse_source_uri
from conf.sources.storage_uri import StorageSettings
from coordination.model import TableName, Ts
from streaming.protocols.contract import Kind, WantedTable
from streaming.protocols.decoders import decoder_of
from streaming.source.contract import ReadOrder
from streaming.source.outside.claimed_rows import with_claimed_rows
from streaming.source.storage.source import StorageSource
from streaming.source.storage.survey import survey_of
from tests.services import wire, wire_storage
from tests.services.store_emulators import Azure, Google, Store
from tests.streaming.protocols.canal_json.reading import EveryTable
from tests.streaming.source.jobs_here import JobsHere
from tests.streaming.source.outside.test_claimed_rows import recorded, rows_of

pytestmark = pytest.mark.more
TABLES = ("orders", "alltypes", "stock", "coupon", "events")
WANTED = {TableName("shop", each): WantedTable(above_ts=Ts(0), key=None) for each in TABLES}


@pytest.fixture(scope="module", params=[Google, Azure])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    try:
        made = request.param()
    except FileNotFoundError as reason:
        pytest.skip(str(reason))
    yield made
    made.close()


def read(settings: StorageSettings) -> list[tuple[Any, ...]]:
    """All that is there, from the beginning."""
    survey_of.cache_clear()
    source, found = StorageSource(settings), list[tuple[Any, ...]]()
    jobs = JobsHere(2, are_within=False)
    reader = source.reader(jobs, start_ts=0, name="tests")
    shape = source.shape()
    position = dict(source.begin_at(shape, {}))
    source.check(position)
    limits = source.limits(shape, {}).advance({}, position)
    ends = source.ends(shape.parts)
    while any(position[part] < at for part, at in ends.items()):
        blocks = reader.read(
            ReadOrder(
                begin=position,
                ends=ends,
                wanted=WANTED,
                identities=shape.identities,
                limits=limits,
                messages=50,
            )
        )
        for each in blocks:
            if each.kind is Kind.DONE:
                position[each.part] = each.last
            elif each.body is not None:
                rows = each.table().to_pylist()
                found += [(each.kind, each.part, str(row)) for row in rows]
    return sorted(found)


def settings_of(uri: str) -> StorageSettings:
    found = parse_source_uri(uri)
    assert isinstance(found, StorageSettings)
    return found


def test_a_folder_in_a_store_is_as_a_local_one(store: Store, tmp_path: Path) -> None:
    variant = wire_storage.CSV
    for step in list(wire_storage.steps(variant))[:20]:
        wire_storage.write(step, tmp_path)
        for path, text in step.files.items():
            store.put(f"a b/cdc#1/{path}", text)
    uri = wire_storage.uri(variant, store.uri("a%20b/cdc%231")) + f"&{store.parameters}"
    local = read(settings_of(wire_storage.uri(variant, tmp_path)))
    assert len(local) > 100
    assert read(settings_of(uri)) == local
    assert "Eby8vdM02" not in masked_uri(uri) + repr(settings_of(uri))


def test_rows_in_claim_check_storage_are_read_from_a_store(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of Google's credentials must be a real one there, so there is none."""
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    variant = "canal-json-claim-check"
    folder = wire.claimed(variant, tmp_path / "claims")
    for each in folder.iterdir():
        store.put(f"claims/{each.name}", each.read_bytes())
    uri = f"{store.uri('claims')}?{store.parameters.partition('&credentials-file')[0]}"
    large = parse_large_messages(
        {"large-message-handle-option": "claim-check", "claim-check-storage-uri": uri}
    )
    rows = rows_of(
        with_claimed_rows(decoder_of("canal-json"), large, ()), recorded(variant), EveryTable(None)
    )
    assert [row for row in rows if row.get("error_class")] == []
    assert len(rows) == wire.config(variant)["counts"]["row"]
    assert quote("Eby8vdM02") not in repr(large)
