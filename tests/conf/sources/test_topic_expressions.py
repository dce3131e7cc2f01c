"""Topics by TiCDC's expressions: which names they are, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf.problems import SettingError
from conf.sources.kafka_uri import KafkaSettings
from conf.sources.source_uri import parse_source_uri
from conf.sources.topic_expressions import parse_topics
from tests.conf.test_load import load

GOOD = "kafka://h:9092/shop?protocol=canal-json&enable-tidb-extension=true"


def taken(text: str, *topics: str) -> list[str]:
    _, expressions = parse_topics(text.split(","))
    return [each for each in topics if expressions.take(each)]


def test_an_expression_is_its_tables_topics():
    names = ("shop_t", "shop", "_t", "shop_", "a.b_c-d", "__consumer_offsets", "shop_t_x")
    assert taken("{schema}_{table}", *names) == ["shop_t", "a.b_c-d", "shop_t_x"]
    assert taken("cdc.{schema}", "cdc.shop", "cdcXshop", "cdc.", "x.cdc.shop") == ["cdc.shop"]
    assert taken("p-{table}-s", "p-t-s", "p--s", "p-t-s2", "p-t-s\n") == ["p-t-s"]
    assert taken("{schema}{table}", "ab", "a") == ["ab"]


def test_what_is_left_out():
    text = "{schema}_{table},!tmp_{table},!shop_log"
    assert taken(text, "shop_t", "tmp_t", "shop_log", "shop_log2") == ["shop_t", "shop_log2"]


def test_a_name_that_ticdc_has_cut():
    long = ("cdc_" + "x" * 300)[:249]
    assert taken("cdc_{table}_end", long, long[:-1]) == [long]


def test_names_and_expressions_of_a_uri():
    source = parse_source_uri(f"{GOOD}&topics=audit,%7Bschema%7D_{{table}},!x_{{table}}")
    assert isinstance(source, KafkaSettings)
    assert source.topics == ("shop", "audit")
    assert source.expressions.taken == ("{schema}_{table}",)
    assert source.expressions.left_out == ("x_{table}",)
    assert source.agreed["topics"] == "!x_{table},audit,shop,{schema}_{table}"
    assert not parse_source_uri(GOOD).expressions


@pytest.mark.parametrize(
    ("topics", "says"),
    [
        ("{table}_{schema}", "must look like prefix{schema}middle{table}suffix"),
        ("{schema}_{name}", "must look like"),
        ("{schema}_{schema}", "must look like"),
        ("a b_{table}", "must look like"),
        ("!tmp", "there is no expression"),
        ("{table},!", "no topic"),
        ("{table},!a%20b", "topic 'a b'"),
    ],
)
def test_what_is_refused(topics: str, says: str):
    with pytest.raises(SettingError) as raised:
        parse_source_uri(f"{GOOD}&topics={topics}")
    assert says in str(raised.value)


DISPATCHERS = """
[[sink.dispatchers]]
matcher = ["shop.audit"]
topic = "audit"
[[sink.dispatchers]]
matcher = ["*.*"]
topic = "{schema}_{table}"
"""


def test_the_expressions_of_dispatchers_are_read_unless_topics_are_listed(tmp_path: Path):
    def source(text: str, more: str = "") -> KafkaSettings:
        settings = load(text, tmp_path=tmp_path, source_uri=GOOD + more)
        assert isinstance(settings.changefeed.source, KafkaSettings)
        return settings.changefeed.source

    plain = source(DISPATCHERS)
    assert (plain.topics, plain.expressions.taken) == (("shop", "audit"), ("{schema}_{table}",))
    listed = source(f"[sink]\ntopics = ['x']\n{DISPATCHERS}")
    assert (listed.topics, listed.expressions.taken) == (("shop", "audit", "x"), ())
    in_uri = source(DISPATCHERS, "&topics=shop_t,shop_{table}")
    assert (in_uri.topics, in_uri.expressions.taken) == (
        ("shop", "audit", "shop_t"),
        ("shop_{table}",),
    )
    left_out = source(DISPATCHERS, "&topics=!x_{table}")
    assert left_out.expressions.texts == ("{schema}_{table}", "!x_{table}")
