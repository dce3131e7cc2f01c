"""What `tidelake task start` writes into a job is what the units read."""

from __future__ import annotations

from pathlib import Path

from conf.sources.binlog_uri import BinlogSettings
from conf.task.file import read_task
from streaming.operations.tasks import planned
from streaming.spans.task_checkpoints import TaskPlace


def test_the_units_read_what_a_task_file_says(tmp_path: Path) -> None:
    file = tmp_path / "task.yaml"
    file.write_text(
        "name: shop\ntask-mode: incremental\ncase-sensitive: true\nmysql-instances:\n"
        "  - source-id: m1\n    meta: {binlog-name: mysql-bin.000007, binlog-pos: 120}\n"
        "    from: {host: db, user: 'r@t', password: 'p@ss'}\n    block-allow-list: a\n"
        "block-allow-list: {a: {do-dbs: [shop]}}\n"
    )
    task = planned(read_task(file), {}, source_uri=None, sink_uri="delta:///lake")
    place = TaskPlace.of(task.name, task.source_id, 3, task.cfg.config, lambda _feed: tmp_path)
    found = place.changefeed
    assert (place.info.id, found.filter.rules, found.filter.case_sensitive) == (
        *("shop-m1", ("shop.*",), True),
    )
    assert found.sink.warehouse == "/lake"
    assert isinstance(found.source, BinlogSettings)
    source = found.source
    assert (source.user, source.password, source.task_mode) == ("r@t", "p@ss", "incremental")
    assert (source.binlog_name, source.binlog_pos) == ("mysql-bin.000007", 120)
