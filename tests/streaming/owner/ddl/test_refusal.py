"""A DDL that cannot be run: its line names `tidelake table reload` where that works."""

from __future__ import annotations

from dataclasses import replace

from conf.settings import Changefeed, DeltaSink, TableRule
from conf.sources.binlog_uri import BinlogSettings
from conf.sources.kafka_uri import KafkaSettings
from coordination.model import TableName, Ts
from streaming.owner.ddl.refusal import brief, is_loaded_anew, way_past
from streaming.owner.ddl.steps import DdlEvent

DDL = DdlEvent(
    commit_ts=Ts(20),
    place=0,
    name=TableName("shop", "t"),
    ddl_type="ALTER",
    query="ALTER TABLE `t` FROBNICATE `x`",
)


def test_a_refusal_names_the_reload_where_it_works() -> None:
    of_kafka = KafkaSettings(
        brokers=("h:1",), topic="t", topics=("t",), protocol="canal-json", partition_num=1
    )
    log = TableRule(matcher=("shop.log",), write_mode="append")
    changefeed = Changefeed(
        id="shop",
        source=BinlogSettings(host="db", user="lake"),
        sink=DeltaSink(warehouse="/lake", tables=(log,)),
    )
    name = TableName("shop", "t")
    assert is_loaded_anew(changefeed, name)
    assert not is_loaded_anew(changefeed, TableName("shop", "log"))
    assert not is_loaded_anew(changefeed, TableName("shop", ""))
    assert not is_loaded_anew(replace(changefeed, source=of_kafka), name)
    reload = "`tidelake table reload shop.t -c shop --sink-uri delta:///lake`"
    assert reload in way_past(DDL, changefeed, may_reload=True)
    assert "reload" not in way_past(DDL, changefeed)
    assert "`tidelake table reload shop.t`" in brief(DDL, "why", may_reload=True)
    assert "reload" not in brief(DDL, "why")
