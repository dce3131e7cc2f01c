"""Rows in claim-check storage are those that TiCDC would have sent without it."""

from __future__ import annotations

import base64
import json
import logging
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from conf.problems import SettingError
from conf.sources.large_messages import parse_large_messages
from coordination.model import TableName, Ts
from streaming.protocols.contract import (
    Kind,
    Messages,
    Wanted,
    WantedTable,
    reads_keys,
    with_key,
)
from streaming.protocols.decoders import decoder_of
from streaming.source.claimed_rows import ClaimedRows, tell_of_cut_rows, with_claimed_rows
from tests.services import wire
from tests.streaming.protocols.canal_json.reading import EveryTable

VARIANTS = {
    "canal-json-claim-check": "canal-json",
    "open-protocol-claim-check": "open-protocol",
    "simple-json-claim-check": "simple",
}
OPTION = {"large-message-handle-option": "claim-check"}


def recorded(variant: str) -> list[Messages]:
    protocol = VARIANTS[variant]
    found = []
    for partition, sent in wire.partitions(variant).items():
        values = [
            with_key(each.key, each.value) if protocol == "open-protocol" else each.value
            for each in sent
        ]
        found.append(
            Messages(
                part=f"wire/{partition}",
                positions=pa.array([each.offset for each in sent], pa.int64()),
                values=pa.array(values, pa.binary()),
            )
        )
    return found


def rows_of(decode: ClaimedRows, chunks: list[Messages], wanted: Wanted) -> list[dict[str, object]]:
    found = []
    for chunk in chunks:
        for block in decode(chunk, wanted):
            assert block.kind is not Kind.BAD
            if block.kind is Kind.ROW and block.body is not None:
                found += [{"table": block.name.table, **r} for r in block.table().to_pylist()]
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_recorded_row_is_whole(variant: str, tmp_path: Path) -> None:
    folder = wire.claimed(variant, tmp_path / "claims")
    large = parse_large_messages(OPTION | {"claim-check-storage-uri": f"file://{folder}"})
    decode = with_claimed_rows(decoder_of(VARIANTS[variant]), large)
    assert isinstance(decode, ClaimedRows)
    assert pickle.loads(pickle.dumps(decode)) == decode
    assert reads_keys(decode) == (variant == "open-protocol-claim-check")
    chunks = recorded(variant)
    rows = rows_of(decode, chunks, EveryTable(None))
    assert [row for row in rows if row.get("error_class")] == []
    counts = wire.config(variant)["counts"]
    assert len(rows) == counts["row"]
    (gone, *_) = folder.iterdir()
    gone.unlink()
    errors = [row for row in rows_of(decode, chunks, EveryTable(None)) if row.get("error_class")]
    assert [row["error_class"] for row in errors] == ["claim-check"]
    assert gone.name in str(errors[0]["error_message"])


def test_files_of_other_tables_are_not_read(tmp_path: Path) -> None:
    """A folder that is none raises where it is read."""
    (tmp_path / "file").touch()
    decode = ClaimedRows(decoder_of("simple"), str(tmp_path / "file"), is_raw=False)
    chunks = recorded("simple-json-claim-check")
    other = {TableName("shop", "stock"): WantedTable(above_ts=Ts(0), key=None)}
    assert rows_of(decode, chunks, other)
    with pytest.raises(NotADirectoryError):
        rows_of(decode, chunks, EveryTable(None))


@pytest.mark.parametrize("body", ["", "{}", "[]", '{"value": 3}', '{"value": "?"}'])
def test_what_is_no_body_is_not_taken(body: str, tmp_path: Path) -> None:
    folder = wire.claimed("canal-json-claim-check", tmp_path / "claims")
    for each in folder.iterdir():
        each.write_text(body)
    decode = ClaimedRows(decoder_of("canal-json"), str(folder), is_raw=False)
    rows = rows_of(decode, recorded("canal-json-claim-check"), EveryTable(None))
    classes = {row["error_class"] for row in rows if row.get("error_class")}
    assert classes == {"claim-check"}


def test_a_raw_body_is_the_value(tmp_path: Path) -> None:
    folder = wire.claimed("open-protocol-claim-check", tmp_path / "claims")
    for each in folder.iterdir():
        value = json.loads(each.read_text())["value"]
        each.write_bytes(base64.b64decode(value))
    decode = ClaimedRows(decoder_of("open-protocol"), str(folder), is_raw=True)
    rows = rows_of(decode, recorded("open-protocol-claim-check"), EveryTable(None))
    assert not [row for row in rows if row.get("error_class")]


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"large-message-handle-option": "handle-key-only"}, "sends its key alone"),
        (OPTION, "are read from claim-check-storage-uri=file:///path alone"),
        (OPTION | {"claim-check-storage-uri": "s3://b/c?secret-access-key=x"}, "alone (a folder"),
    ],
)
def test_a_loss_is_told_in_one_line(
    parameters: dict[str, str], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    large = parse_large_messages(parameters)
    assert large.folder is None
    with caplog.at_level(logging.WARNING):
        tell_of_cut_rows(large)
    (record,) = caplog.records
    assert says in record.message
    assert "secret" not in record.message
    decode = decoder_of("simple")
    assert with_claimed_rows(decode, large) is decode


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(SettingError, match="large-message-handle-option"):
        parse_large_messages({"large-message-handle-option": "claim"})
    with pytest.raises(SettingError, match="must look like file:///path"):
        parse_large_messages(OPTION | {"claim-check-storage-uri": "file://host/path"})
