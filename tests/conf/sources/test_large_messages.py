"""Where large rows are, as the changefeed's row tells it to a replay of dead letters."""

from __future__ import annotations

import json

import pytest

from conf.sources.large_messages import NOTHING_LARGE, LargeMessages, parse_large_messages

CLAIM_CHECK = {"large-message-handle-option": "claim-check"}


@pytest.mark.parametrize("storage", ["file:///rows/here", "s3://rows/here", "azure://rows"])
def test_what_is_told_comes_back(storage: str) -> None:
    uri = f"{storage}?region=eu-1&endpoint=http://minio:9000&account-name=a"
    large = parse_large_messages({**CLAIM_CHECK, "claim-check-storage-uri": uri})
    assert large.storage == storage
    assert LargeMessages.of_told(json.loads(json.dumps(large.told()))) == large


def test_no_secret_is_told_and_a_reference_is_none() -> None:
    uri = (
        "s3://rows?access-key=AKIAPLAIN&secret-access-key=${env:ROWS_SECRET}"
        "&session-token=${env:&endpoint=http://user:hidden@minio:9000"
    )
    large = parse_large_messages({**CLAIM_CHECK, "claim-check-storage-uri": uri})
    told = json.dumps(large.told())
    assert "${env:ROWS_SECRET}" in told
    assert not [each for each in ("AKIAPLAIN", "hidden", "session") if each in told.lower()]


def test_nothing_is_told_where_none_are_read() -> None:
    assert LargeMessages(loss="why").told() is None
    assert LargeMessages.of_told(None) == NOTHING_LARGE
