"""Silence is told once, and so is its end."""

from __future__ import annotations

import logging

import pytest

from streaming.stream.lasting_warnings import ETCD, SOURCE, LastingWarnings, etcd_concern
from tests.own_lines import own_records


def test_each_concern_is_logged_once_and_stands_in_the_row_until_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    concerns = LastingWarnings()
    for after_s in (12, 14, 16):
        concerns.say(SOURCE, f"the broker does not answer, for {after_s} s")
    concerns.say(ETCD, "etcd does not answer")
    assert concerns.first == "the broker does not answer, for 12 s"
    concerns.say(SOURCE, None)
    concerns.say(SOURCE, None)
    assert concerns.first == "etcd does not answer"
    concerns.say(ETCD, None)
    assert concerns.first is None
    said = [(each.levelname, each.getMessage()) for each in own_records(caplog)]
    assert said == [
        ("WARNING", "the broker does not answer, for 12 s"),
        ("WARNING", "etcd does not answer"),
        ("INFO", "it is over: the broker does not answer, for 12 s"),
        ("INFO", "it is over: etcd does not answer"),
    ]


def test_half_a_lease_without_etcd_is_a_concern_of_the_same_words() -> None:
    assert etcd_concern(5.0, ttl_s=10) is None
    text = etcd_concern(5.1, ttl_s=10)
    assert text == etcd_concern(9.0, ttl_s=10)
    assert "etcd has not answered for 5 s" in str(text)


def test_an_etcd_that_takes_no_writes_is_a_concern() -> None:
    """Its keep-alives are answered, so the lease never ends."""
    assert etcd_concern(1.0, ttl_s=10, refused_write=(4.0, "it is full")) is None
    text = etcd_concern(1.0, ttl_s=10, refused_write=(6.0, "it is full"))
    assert "etcd carries out no write of this capture" in str(text)
    assert "it is full" in str(text)
