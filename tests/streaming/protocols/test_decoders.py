"""The registry, the settings and docs/protocols.md name the same protocols."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from conf.problems import SettingError
from conf.sources.recording_uri import RecordingSettings
from conf.sources.source_parameters import PROTOCOLS, PROTOCOLS_NOT_BUILT
from conf.sources.source_uri import parse_source_uri
from coordination.errors import ConfigError
from streaming.protocols.contract import reads_keys
from streaming.protocols.decoders import decoder_of, disguise_of

PAGE = (Path(__file__).resolve().parents[3] / "docs/protocols.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([\w-]+)` \| ([\w ]+) \| (.*) \|$", re.MULTILINE)
URI = "file:///r.jsonl?protocol="
REGISTRY = "schema-registry=http://r:8081"


def test_the_page_has_each_protocol_once():
    rows = {name: built for name, built, _ in ROW.findall(PAGE)}
    assert len(rows) == len(ROW.findall(PAGE))
    assert {name for name, built in rows.items() if built == "yes"} == {*PROTOCOLS}
    assert {name for name, built in rows.items() if built == "not built"} == {*PROTOCOLS_NOT_BUILT}


def test_the_page_says_what_a_protocol_needs():
    for name, built, rest in ROW.findall(PAGE):
        if built != "yes":
            continue
        needed = re.findall(r"`([\w-]+=[\w-]+)`", rest.split("|")[0])
        source = parse_source_uri("&".join((URI + name, REGISTRY, *needed)))
        assert isinstance(source, RecordingSettings)
        assert source.protocol == name
        for one in needed:
            others = [each for each in needed if each != one]
            with pytest.raises(SettingError, match=one):
                parse_source_uri("&".join((URI + name, REGISTRY, *others)))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_protocol_that_is_accepted_is_built(protocol: str):
    decode = decoder_of(protocol, start_ts=3)
    assert pickle.loads(pickle.dumps(decode)) == decode
    assert reads_keys(decode) == (protocol in ("open-protocol", "debezium", "avro"))


def test_others_are_not():
    with pytest.raises(KeyError):
        decoder_of("craft")


def test_a_mask_is_refused_where_none_is_built():
    assert disguise_of("canal-json", 1)(b"{") == b"?"
    with pytest.raises(ConfigError, match="--mask is not built yet for protocol=simple"):
        disguise_of("simple", 1)


def test_the_other_name_of_open_protocol():
    for name in ("default", "Open-Protocol"):
        assert parse_source_uri(f"{URI}{name}") == parse_source_uri(f"{URI}open-protocol")


def test_the_compression_is_one_that_ticdc_has():
    for name in ("none", "lz4", "Snappy"):
        uri = f"{URI}open-protocol&large-message-handle-compression={name}"
        assert parse_source_uri(uri) == parse_source_uri(f"{URI}open-protocol")
    with pytest.raises(SettingError, match="unknown large-message-handle-compression 'zstd'"):
        parse_source_uri(f"{URI}open-protocol&large-message-handle-compression=zstd")
