"""A TiDB as the source of a copy: its URI, and what is refused."""

from __future__ import annotations

import pytest

from conf.load import load_settings
from conf.problems import SettingError
from conf.sources.source_uri import check_parameters, parse_source_uri
from conf.sources.tidb_uri import TidbSettings

GOOD = "tidb://root@tidb.example/"
TSO = 452654700134990849


def refused(uri: str, **arguments: object) -> str:
    given = {"source-uri": uri, "sink-uri": "delta:///lake", "changefeed-id": "shop", **arguments}
    with pytest.raises(SettingError) as raised:
        load_settings(config=None, environment={}, arguments=given)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_the_usual_uri() -> None:
    assert parse_source_uri(GOOD) == TidbSettings(host="tidb.example", port=4000, user="root")
    assert parse_source_uri(f"{GOOD}?task-mode=full") == parse_source_uri(GOOD)


def test_every_parameter() -> None:
    uri = (
        f"tidb://u@[::1]:4001/?password=${{env:P}}&snapshot-ts={TSO}&tls=verify-ca&ca=/ca.pem"
        "&connect-timeout-s=3&chunk-rows=1000&connections=8"
    )
    check_parameters(uri)
    source = parse_source_uri(uri)
    assert source == TidbSettings(
        host="::1",
        port=4001,
        user="u",
        password="${env:P}",
        snapshot_ts=TSO,
        tls="verify-ca",
        ca="/ca.pem",
        connect_timeout_s=3,
        chunk_rows=1000,
        connections=8,
    )
    assert source.uri == "tidb://[::1]:4001/"


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        (f"{GOOD}?task-mode=all", "a TiDB has no binlog that could be followed"),
        (f"{GOOD}?task-mode=fll", "task-mode"),
        (f"{GOOD}?binlog-name=a.000001", "unknown parameter 'binlog-name'"),
        (f"{GOOD}?time-zone=UTC", "stands in the Kafka URI"),
        (f"{GOOD}?snapshot-ts=now", "must be a TSO"),
        (f"{GOOD}?snapshot-ts=1726790400", "looks like seconds since 1970"),
        ("tidb://a,b/", "several servers"),
        ("tidb://tidb.example/", "no user; it must look like tidb://user@host:4000/"),
        (f"{GOOD}shop", "databases and tables are chosen by"),
    ],
)
def test_what_is_refused(uri: str, said: str) -> None:
    assert said in refused(uri)


@pytest.mark.parametrize("name", ["start-ts", "overwrite-checkpoint-ts", "target-ts"])
def test_a_ts_that_says_where_to_begin_or_end_is_refused(name: str) -> None:
    assert name in refused(GOOD, **{name: TSO})


def test_a_changefeed_needs_an_id() -> None:
    assert "changefeed-id is missing" in refused(GOOD, **{"changefeed-id": None})
