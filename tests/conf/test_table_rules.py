"""``[[sink.tables]]``: what a file may say of how tables are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf.problems import SettingError
from tests.conf.test_load import load


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[sink.tables]]\nwrite-mode = 'append'", "sink.tables: one of them has no matcher"),
        ("[[sink.tables]]\nmatcher=['*.*']\nwrite-mode='log'", "one of upsert, append"),
        (
            "[[sink.tables]]\nmatcher=['*.*']\nextra-columns=['_tidelake_ts']",
            "one of _tidelake_commit_ts, _tidelake_op",
        ),
        (
            "[[sink.tables]]\nmatcher=['a.*']\nwrite-mode='append'\nextra-columns=['_tidelake_op']",
            "are of upserted tables, and write-mode is 'append'",
        ),
        ("[[sink.tables]]\nmatchers=['*.*']", "'sink.tables.matchers'; did you mean matcher?"),
        (
            "apply-engine = 'spark'\n[[sink.tables]]\nmatcher=['*.*']\nwrite-mode='append'",
            "all else is written by merge-on-write alone",
        ),
        ("[[sink.tables]]\nmatcher=['*.*']\nkey='id'", "one of all-columns"),
        ("[[sink.tables]]\nmatcher=['*.*']\nkey='rows'", "read the database's binlog"),
        ("[[sink.tables]]\nmatcher=['*.*']\nkey='rows'\nsoft-delete=true", "tell them apart"),
        (
            "[[sink.tables]]\nmatcher=['*.*']\nkey='rows'\nextra-columns=['_tidelake_op']",
            "tell them apart",
        ),
        (
            "[[sink.tables]]\nmatcher=['*.*']\nkey='all-columns'\nwrite-mode='history'",
            "key = 'all-columns' is of upserted tables, and write-mode is 'history'",
        ),
        (
            "apply-engine = 'spark'\n[[sink.tables]]\nmatcher=['*.*']\nkey='all-columns'",
            "writes upserted tables by a key of their own",
        ),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SettingError) as raised:
        load(text, tmp_path=tmp_path)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_tables_without_a_key_are_taken_by_either_choice(tmp_path: Path) -> None:
    for choice in ("write-mode='append'", "key='all-columns'"):
        text = f"force-replicate=true\n[[sink.tables]]\nmatcher=['*.*']\n{choice}"
        assert len(load(text, tmp_path=tmp_path).changefeed.sink.tables) == 1
