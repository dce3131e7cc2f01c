"""Recordings of the same kinds with other names, values and zones lead to their tables, too."""

from __future__ import annotations

import pytest

from tests.services import wire, wire_storage
from tests.services.other_recordings.avro_protocol import OtherAvro
from tests.services.other_recordings.making import Other
from tests.services.other_recordings.palettes import ZONES, some_names
from tests.services.other_recordings.reading import differences
from tests.services.other_recordings.simple_avro import in_avro
from tests.services.other_recordings.storage import OtherFolder
from tests.services.other_recordings.values import Values, any_value, survives_debezium

PROTOCOLS = {
    "canal-json": "canal-json",
    "canal-json-noext": "canal-json",
    "open-protocol": "open-protocol",
    "simple-json": "simple",
    "simple-avro": "simple",
    "debezium": "debezium",
    "debezium-noschema": "debezium",
}
REWRITTEN = (
    *(each for each in PROTOCOLS if each != "simple-avro"),
    *("canal-json-content-compatible", "canal-json-delete-handle-key", "canal-json-claim-check"),
    *("open-protocol-claim-check", "open-protocol-updated-columns", "simple-json-claim-check"),
)


@pytest.mark.parametrize("variant", REWRITTEN)
def test_without_a_change_it_is_what_ticdc_wrote(variant: str) -> None:
    assert tuple(Other().messages(variant)) == wire.messages(variant)


def test_so_are_avro_and_folders() -> None:
    for variant in ("avro-watermark", "avro-string-modes"):
        assert tuple(OtherAvro(Other(), variant).messages()) == wire.messages(variant)
    for variant in wire_storage.PARAMETERS:
        assert [*OtherFolder(Other(), variant).steps()] == [*wire_storage.steps(variant)]


@pytest.mark.parametrize("variant", PROTOCOLS)
@pytest.mark.seeds(1, 1)
def test_other_names_values_and_zones(variant: str, seed: int) -> None:
    is_lossy = variant.startswith("debezium")
    values = Values(
        seed,
        zone=ZONES[seed % len(ZONES)],
        share=1 if is_lossy else 0.8,
        may_be=survives_debezium if is_lossy else any_value,
    )
    other = Other(some_names("any", seed), values)
    is_avro = variant == "simple-avro"
    sent = in_avro(other.messages("simple-json")) if is_avro else other.messages(variant)
    chunk, is_numbered = (200, 60)[seed % 2], variant == "canal-json-noext"
    protocol = PROTOCOLS[variant]
    assert differences(protocol, other, sent, chunk=chunk, is_numbered=is_numbered) == []
