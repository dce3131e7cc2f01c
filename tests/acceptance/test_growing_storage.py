"""Folders of TiCDC's storage sink that grow while they are read."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from conf.sources.source_uri import parse_source_uri
from sinks.storage.open_storage import open_storage
from streaming.jobs.on_threads import ThreadsOfProcess
from tests.acceptance.one_process import Lives
from tests.acceptance.recorded_folders import assert_is, lives_of
from tests.services import wire, wire_storage
from tests.services.s3_server import KEY_ID, REGION, SECRET, S3Server
from tests.services.wire_storage import CANAL_JSON, CSV, CSV_OLD_VALUE

FIRST_STEPS = 14  # then TiCDC's checkpoint is beyond `after_updates`
pytestmark = pytest.mark.acceptance


@pytest.mark.parametrize("variant", [CSV, pytest.param(CANAL_JSON, marks=pytest.mark.soak)])
def test_folders_that_are_named_by_ids_lead_there_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: str
) -> None:
    """Half of it is there at the start."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder, by_id = tmp_path / "cdc", wire_storage.steps_by_id
    steps = list(by_id(variant))
    for step in steps[:50]:
        wire_storage.write(step, folder)
    uri = f"{wire_storage.uri(variant, folder)}&use-table-id-as-path=true"
    lives = Lives(ThreadsOfProcess, None, tmp_path, source=parse_source_uri(uri), quiet_s=0.2)
    life = lives.begin(target_ts=wire.state_ts("final"))
    life.wait_until(partial(has_come_to, lives, steps[48].ts - 1))
    for step in steps[50:]:
        wire_storage.write(step, folder)
    assert life.join() is None
    assert_is(lives, variant, "final")


@pytest.mark.parametrize(
    "variant",
    [CANAL_JSON, *(pytest.param(each, marks=pytest.mark.soak) for each in (CSV, CSV_OLD_VALUE))],
)
def test_a_folder_is_followed_as_it_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: str
) -> None:
    """Checkpoints of TiCDC are followed; a restart of ours where TiCDC has one, and elsewhere."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = tmp_path / "cdc"
    folder.mkdir()
    lives, resolved_ts = lives_of(variant, folder, tmp_path), 0
    life = lives.begin()
    for number, step in enumerate(wire_storage.steps(variant)):
        wire_storage.write(step, folder)
        if step.what == "restart" or number == 16:
            assert life.stop() is None
            life = lives.begin()
        if step.what == "metadata" and step.ts > resolved_ts and number % 3 == 1:
            resolved_ts = step.ts
            life.wait_until(partial(has_come_to, lives, resolved_ts - 1))
    assert life.stop() is None
    lives.finish(target_ts=wire.state_ts("final"))
    assert_is(lives, variant, "final")


@pytest.mark.more
@pytest.mark.parametrize("variant", [CSV])
def test_a_folder_on_an_object_store(
    s3: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variant: str,
) -> None:
    """It grows between two lives, and while the second one reads. Its secret is in no table."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    prefix = f"cdc-{tmp_path.name}"
    told = (
        f"&endpoint={s3.url}&region={REGION}&access-key={KEY_ID}&secret-access-key={SECRET}"
        "&force-path-style=true"
    )
    uri = wire_storage.uri(variant, f"s3://{s3.bucket}/{prefix}") + told
    lives = Lives(ThreadsOfProcess, None, tmp_path, source=parse_source_uri(uri), quiet_s=0.2)
    storage = open_storage(f"s3://{s3.bucket}/{prefix}", s3.options)
    steps, life = list(wire_storage.steps(variant)), None
    for number, step in enumerate(steps):
        for path, text in step.files.items():
            storage.replace(path, text)
        if number == FIRST_STEPS:
            lives.finish(target_ts=wire.state_ts("after_updates"))
            assert_is(lives, variant, "after_updates")
            life = lives.begin(target_ts=wire.state_ts("final"))
    assert life is not None
    assert life.join() is None
    assert_is(lives, variant, "final")
    assert SECRET not in repr(lives.changefeed())


def has_come_to(lives: Lives, ts: int) -> bool:
    row = lives.changefeed()
    return row is not None and row.checkpoint_ts >= ts
