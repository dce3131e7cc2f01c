"""Every line says whose it is."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from streaming import logs


@pytest.fixture(autouse=True)
def _loggers_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logs.identity.changefeed = logs.identity.capture = logs.identity.epoch = ""


def test_json_lines_carry_changefeed_capture_and_epoch():
    out = io.StringIO()
    identity = logs.install("json", "INFO", changefeed="shop", stream=out)
    logging.getLogger("a").info("started with %d tables", 3)
    identity.capture, identity.epoch = "capture-1", "epoch-1"
    logging.getLogger("a.b").warning("slow", extra={"batch_id": 7})
    first, second = map(json.loads, out.getvalue().splitlines())
    assert (first["changefeed"], first["capture"], first["epoch"]) == ("shop", "", "")
    assert first["message"] == "started with 3 tables"
    assert (second["capture"], second["epoch"], second["batch_id"]) == ("capture-1", "epoch-1", 7)
    assert (second["level"], second["logger"]) == ("WARNING", "a.b")
    assert second["time"].endswith("Z")


def test_a_json_line_with_an_exception_is_still_one_line():
    out = io.StringIO()
    logs.install("json", "INFO", stream=out)
    try:
        int("odd\nvalue")
    except ValueError:
        logging.getLogger("a").exception("failed")
    (line,) = out.getvalue().splitlines()
    assert "ValueError: invalid literal" in json.loads(line)["exception"]


def test_text_lines_end_with_who_is_logging():
    out = io.StringIO()
    identity = logs.install("text", "INFO", changefeed="shop", stream=out)
    identity.capture, identity.epoch = "c", "e"
    logging.getLogger("a").info("done", extra={"rows": 5})
    assert out.getvalue().endswith("Z INFO a: done rows=5 changefeed=shop capture=c epoch=e\n")


def test_clients_are_quiet_and_handlers_are_replaced():
    out = io.StringIO()
    logs.install("text", "INFO", stream=io.StringIO())
    logs.install("text", "INFO", stream=out)
    logging.getLogger("py4j.java_gateway").warning("every call")
    logging.getLogger("kafka.conn").warning("every connection")
    logging.getLogger("a").debug("too much")
    logging.getLogger("a").info("once")
    assert out.getvalue().count("\n") == 1
