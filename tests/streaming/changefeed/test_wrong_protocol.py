"""A source of which nothing can be read, since its URI says another protocol."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pytest

from conf.sources.kafka_uri import KafkaSettings
from coordination.errors import ConfigError
from streaming.changefeed.refused.message_shape import looks_like
from streaming.changefeed.refused.wrong_protocol import HANDFUL, MANY, WrongProtocol
from streaming.protocols.contract import Block, Messages, reads_keys, with_key
from streaming.protocols.decoders import decoder_of
from tests.services import wire
from tests.streaming.protocols.canal_json.reading import EveryTable

VARIANTS = {  # what their messages look like
    "canal-json": "canal-json with the TiDB extension",
    "canal-json-lz4": "canal-json with the TiDB extension",
    "canal-json-snappy": "canal-json with the TiDB extension",
    "canal-json-noext": "canal-json without the TiDB extension",
    "open-protocol": "open-protocol",
    "simple-json": "simple",
    "simple-avro": "simple in Avro",
    "debezium": "debezium",
    "debezium-noschema": "debezium",
    "maxwell": "maxwell",
    "avro": "avro with a schema registry",
    "avro-watermark": "avro with a schema registry",
}
READ_AS = ("canal-json", "open-protocol", "simple", "debezium", "avro", "maxwell")
GARBAGE = b"\xff\xfe no message"


def blocks(protocol: str, values: Iterable[tuple[bytes | None, bytes | None]]) -> list[Block]:
    """As an at-least-once reader reads them, where the protocol may have one."""
    decode = decoder_of(protocol)
    found = [with_key(k, v) if reads_keys(decode) else v for k, v in values]
    numbers = pa.array(range(1, len(found) + 1), pa.int64())
    is_numbered = protocol in ("maxwell",)
    messages = Messages(
        part="t/0",
        positions=numbers,
        values=pa.array(found, pa.binary()),
        commit_ts=numbers if is_numbered else None,
    )
    return list(decode(messages, EveryTable(None)))


def recorded(variant: str, count: int = 40) -> list[tuple[bytes | None, bytes | None]]:
    return [(each.key, each.value) for each in wire.messages(variant)[:count]]


class Said:
    def __init__(self, protocol: str) -> None:
        self.concerns: list[str | None] = []
        source = KafkaSettings(
            brokers=("b:9092",),
            topic="t",
            topics=("t",),
            protocol=protocol,
            partition_num=1,
            is_numbered=protocol == "maxwell",
        )
        self.wrong = WrongProtocol(
            source,
            lambda part, at: f"{part} at {at}",
            lambda _, what: self.concerns.append(what),
        )

    def refusal(self, *reads: list[Block], has_tables: bool = False) -> str:
        for each in reads:
            self.wrong.look(each)
            try:
                self.wrong.refuse(has_tables=has_tables)
            except ConfigError as error:
                return str(error)
        return ""


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_message_looks_like_its_protocol(variant: str) -> None:
    values = [each.value for each in wire.messages(variant) if each.value is not None]
    assert {looks_like(each, has_key=False) for each in values} == {VARIANTS[variant]}


OTHERS = [
    (variant, read_as)
    for variant in VARIANTS
    for read_as in READ_AS
    if variant == "canal-json-noext" or not variant.startswith(read_as)
    if (variant, read_as) != ("open-protocol", "avro")  # the registry has no such schema
]


@pytest.mark.parametrize(("variant", "read_as"), OTHERS)
def test_every_protocol_that_is_read_as_another_one_is_named(variant: str, read_as: str) -> None:
    said = Said(read_as).refusal(blocks(read_as, recorded(variant)))
    assert f"with protocol={read_as} (" in said
    assert f"They look like {VARIANTS[variant]}: " in said


@pytest.mark.parametrize("variant", ["canal-json", "open-protocol", "simple-json", "debezium"])
def test_what_can_be_read_is_not_refused(variant: str) -> None:
    protocol = variant.removesuffix("-json") if variant.startswith("simple") else variant
    assert Said(protocol).refusal(blocks(protocol, recorded(variant))) == ""


def test_too_few_messages_say_nothing_yet() -> None:
    few = recorded("maxwell", HANDFUL - 1)
    said = Said("canal-json")
    assert said.refusal(blocks("canal-json", few)) == ""
    assert "maxwell" in said.refusal(blocks("canal-json", recorded("maxwell", 1)))


def test_garbage_at_the_beginning_is_a_letter_where_good_messages_follow() -> None:
    garbage = [(None, GARBAGE)] * (MANY - 1)
    reads = blocks("canal-json", garbage), blocks("canal-json", recorded("canal-json"))
    assert Said("canal-json").refusal(*reads) == ""
    both = blocks("canal-json", [*garbage, (None, GARBAGE), *recorded("canal-json")])
    assert Said("canal-json").refusal(both) == ""


def test_what_is_like_no_protocol_is_refused_as_such() -> None:
    said = Said("canal-json").refusal(blocks("canal-json", [(None, GARBAGE)] * MANY))
    assert "set `protocol` in --source-uri to what their sender writes" in said


@pytest.mark.parametrize("has_tables", [True, False])
def test_a_topic_that_turns_is_a_warning_until_it_turns_back(has_tables: bool) -> None:
    said = Said("canal-json")
    good, other = recorded("canal-json"), recorded("maxwell")
    first = [] if has_tables else [blocks("canal-json", good)]
    assert said.refusal(*first, blocks("canal-json", other), has_tables=has_tables) == ""
    assert len(said.concerns) == 1
    assert "They look like maxwell: " in str(said.concerns[0])
    said.refusal(blocks("canal-json", good), has_tables=has_tables)
    assert said.concerns[-1] is None
