"""Where the warehouse is."""

from __future__ import annotations

import pytest

from conf.problems import SettingError
from conf.sink_uri import parse_sink_uri


@pytest.mark.parametrize(
    ("uri", "warehouse"),
    [
        ("delta:///data/lake", "/data/lake"),
        ("delta:///data/my%20lake/", "/data/my lake"),
        ("delta://localhost/data", "/data"),
        ("delta+s3://bucket/a/b/", "s3://bucket/a/b"),
        ("delta+s3a://bucket", "s3://bucket"),
        ("delta+abfss://box@account.dfs.core.windows.net/x", None),
        ("delta+gs://bucket/x", "gs://bucket/x"),
    ],
)
def test_warehouses(uri: str, warehouse: str | None):
    assert parse_sink_uri(uri) == (warehouse or uri.removeprefix("delta+"))


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("/data/lake", "a bare path is not a Delta sink"),
        ("delta://data/lake", "relative"),
        ("delta:data", "is relative"),
        ("delta://", "no path"),
        ("delta:///", "no path"),
        ("delta:///a/../b", "'..'"),
        ("delta:///a?x=1", "no parameters"),
        ("delta+s3:///a", "needs a bucket"),
        ("delta+catalog://main", "not built yet"),
        ("delta+hdfs://nn/a", "not built yet"),
        ("delta+ftp://h/a", "not known"),
        ("kafka://h:9092/shop?protocol=canal-json", "that is --source-uri here"),
        ("mysql://h/a", "mysql is not a Delta sink"),
    ],
)
def test_what_is_no_warehouse_is_one_clear_line(uri: str, says: str):
    with pytest.raises(SettingError) as raised:
        parse_sink_uri(uri)
    assert says in str(raised.value)
