"""Which event filters can be asked of a source's rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf.load import load_settings
from conf.problems import SettingError
from conf.settings import Settings
from streaming.changefeed.filter import TableFilter
from tests.streaming.apply.blocks import A

KAFKA = "kafka://h:9092/shop?protocol=canal-json&enable-tidb-extension=true"


def load(tmp_path: Path, text: str, uri: str = KAFKA) -> Settings:
    file = tmp_path / "changefeed.toml"
    file.write_text(text)
    given = {"source-uri": uri, "sink-uri": "delta:///lake"}
    return load_settings(config=file, environment={}, arguments=given)


def event_filter(expression: str, more: str = "") -> str:
    return f'''
[filter]
{more}
[[filter.event-filters]]
matcher = ["shop.*"]
ignore-event = ["delete", "drop table"]
ignore-insert-value-expr = "{expression}"
'''


def test_a_condition_that_is_not_read_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(SettingError) as refused:
        load(tmp_path, event_filter("lower(v) = 'x'"))
    told = str(refused.value)
    assert "filter.event-filters.ignore-insert-value-expr: at character 1" in told
    assert 'say dml-filters = "ticdc" in [filter]' in told


def test_what_ticdc_filters_alone_is_not_asked_here(tmp_path: Path) -> None:
    text = event_filter("lower(v) = 'x'", 'dml-filters = "ticdc"')
    found = TableFilter(load(tmp_path, text).changefeed.filter)
    assert not found.row_filter(A)
    assert not found.asks_old_rows
    assert found.ignores_ddl(A, ["drop table"], "DROP TABLE a")
    here = TableFilter(load(tmp_path, event_filter("v = 'x'")).changefeed.filter).row_filter(A)
    assert (len(here.rules), here.events) == (1, {"delete"})


def test_no_ticdc_filters_what_comes_from_a_database(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no TiCDC stands before"):
        load(tmp_path, event_filter("v = 'x'", 'dml-filters = "ticdc"'), "mysql://u@h:3306/")
    with pytest.raises(SettingError) as refused:
        load(tmp_path, event_filter("lower(v) = 'x'"), "mysql://u@h:3306/")
    assert "dml-filters" not in str(refused.value)


def test_updates_that_come_as_inserts_are_not_told_apart(tmp_path: Path) -> None:
    uri, old = "kafka://h:9092/shop?protocol=open-protocol", "[sink.open]\noutput-old-value = false"
    for text in (event_filter("v = 'x'"), event_filter("").replace('"delete"', '"all dml"')):
        with pytest.raises(SettingError, match="an UPDATE comes as an INSERT does"):
            load(tmp_path, text + old, uri)
        load(tmp_path, text, uri)
        load(tmp_path, text + old.replace("open", "debezium"), uri)
        load(tmp_path, text + old, f"{uri}&output-old-value=true")
    assert not load(tmp_path, event_filter("") + old, uri).changefeed.source.tells_updates  # type: ignore[union-attr]
    load(tmp_path, event_filter("v = 'x'", 'dml-filters = "ticdc"') + old, uri)
