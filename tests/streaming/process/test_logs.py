"""Every line says whose it is, and each fact once."""

from __future__ import annotations

import ast
import io
import json
import logging
import re
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import py4j.java_gateway
import pytest

from streaming.process import logs

ROOT = Path(__file__).resolve().parents[3]
LEVELS = ("debug", "info", "warning", "error", "exception", "critical")
# A message, its facts by name, and behind a colon what something else has said.
TEMPLATE = re.compile(r"[^=]*?(?: [a-z]\w*=%[.\w]+)*(?:: [^=]*)?(?: [a-z]\w*=%[.\w]+)*")


@pytest.fixture(autouse=True)
def _loggers_as_before() -> Iterator[None]:
    root, hook = logging.getLogger(), threading.excepthook
    handlers, level = list(root.handlers), root.level
    logs.identity.changefeed_id = logs.identity.capture_id = logs.identity.epoch = ""
    yield
    logging.captureWarnings(False)
    threading.excepthook = hook
    root.handlers[:] = handlers
    root.setLevel(level)
    logs.identity.changefeed_id = logs.identity.capture_id = logs.identity.epoch = ""


def json_line(out: io.StringIO) -> dict[str, object]:
    (line,) = out.getvalue().splitlines()
    return dict(json.loads(line))


def test_json_lines_carry_changefeed_capture_and_epoch():
    out = io.StringIO()
    identity = logs.install("json", "INFO", changefeed="shop", stream=out)
    logging.getLogger("a").info("started with %d tables", 3)
    identity.capture_id, identity.epoch = "capture-1", "epoch-1"
    logging.getLogger("a.b").warning("slow", extra={"batch_id": 7})
    first, second = map(json.loads, out.getvalue().splitlines())
    assert first["changefeed_id"] == "shop"
    assert "capture_id" not in first  # it is nobody yet
    assert first["message"] == "started with 3 tables"
    assert (second["capture_id"], second["epoch"]) == ("capture-1", "epoch-1")
    assert second["batch_id"] == 7
    assert (second["level"], second["logger"]) == ("WARNING", "a.b")
    assert second["time"].endswith("Z")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_line_says_what_happened_and_no_ids():
    out = Terminal()
    identity = logs.install("text", "INFO", changefeed="shop", stream=out)
    identity.capture_id, identity.epoch = "capture-1", "epoch-1"
    logging.getLogger("a").info("loaded table=%s rows=%d", "shop.orders", 3)
    logging.getLogger("a").warning("password=%s", "x")
    first, second = out.getvalue().splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d INFO loaded table=shop\.orders rows=3", first)
    assert second.split(" ", 1)[1].startswith("WARNING password=")
    json_out = Terminal()
    logs.install("json", "INFO", changefeed="shop", stream=json_out)
    logging.getLogger("a").info("x")
    assert json_line(json_out)["changefeed_id"] == "shop"


def test_in_json_facts_are_fields_and_not_in_the_message():
    out = io.StringIO()
    logs.install("json", "INFO", stream=out)
    error = OSError("gone  for good: 100 %")
    logging.getLogger("a").info(
        "applied a batch rows=%d seconds=%.2f lease=%x table=%s none=%s: %s",
        *(3, 1.2345, 255, "shop.orders", None, error),
    )
    line = json_line(out)
    assert line["message"] == "applied a batch: gone  for good: 100 %"
    facts = {name: line[name] for name in ("rows", "seconds", "lease", "table", "none")}
    assert facts == {
        "rows": 3, "seconds": 1.23, "lease": "ff", "table": "shop.orders", "none": None
    }  # fmt: skip


def test_a_mapping_is_an_object():
    out = io.StringIO()
    logs.install("json", "INFO", stream=out)
    logging.getLogger("a").info("stream started offsets=%s", {("shop", 0): 5})
    line = json_line(out)
    assert (line["message"], line["offsets"]) == ("stream started", {"('shop', 0)": 5})


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_each_fact_is_there_once(log_format: str):
    out = io.StringIO()
    identity = logs.install(log_format, "INFO", changefeed="shop", stream=out)
    identity.capture_id, identity.epoch = "capture-1", "epoch-1"
    logging.getLogger("a").info("capture starts capture_id=%s epoch=%s", "capture-1", "epoch-1")
    said = out.getvalue()
    for fact in ("capture-1", "epoch-1", "shop"):
        assert said.count(fact) == 1


def test_a_line_about_another_capture_is_about_that_one():
    out = io.StringIO()
    identity = logs.install("json", "INFO", stream=out)
    identity.capture_id = "capture-1"
    logging.getLogger("a").info("it does not answer capture_id=%s", "capture-2")
    assert json_line(out)["capture_id"] == "capture-2"


def test_a_slip_in_a_call_is_still_a_line():
    out = io.StringIO()
    logs.install("json", "INFO", stream=out)
    logging.getLogger("a").info("done rows=%d", 5, extra={"of": "shop"})
    logging.getLogger("a").info("100 % done")
    first, second = map(json.loads, out.getvalue().splitlines())
    assert (first["message"], first["rows"], first["of"]) == ("done", 5, "shop")
    assert second["message"] == "100 % done"


def test_a_json_line_with_an_exception_is_still_one_line():
    out = io.StringIO()
    logs.install("json", "INFO", stream=out)
    try:
        int("odd\nvalue")
    except ValueError:
        logging.getLogger("a").exception("failed")
    assert "ValueError: invalid literal" in str(json_line(out)["exception"])


def test_text_lines_end_with_who_is_logging():
    out = io.StringIO()
    identity = logs.install("text", "INFO", changefeed="shop", stream=out)
    identity.capture_id, identity.epoch = "c", "e"
    logging.getLogger("a").info("done rows=%d", 5)
    assert out.getvalue().endswith(
        "Z INFO a: done rows=5 changefeed_id=shop capture_id=c epoch=e\n"
    )


def test_clients_are_silent_and_handlers_are_replaced():
    out = io.StringIO()
    logs.install("text", "INFO", stream=io.StringIO())
    logs.install("text", "INFO", stream=out)
    logging.getLogger("py4j.java_gateway").error("every call")
    logging.getLogger("a").debug("too much")
    logging.getLogger("a").info("once")
    assert out.getvalue().count("\n") == 1


def test_calls_that_fail_while_the_jvm_ends_are_no_lines():
    """Where the JVM is killed amid Spark's start py4j's ``send_command`` logs a stack trace."""
    out = io.StringIO()
    logs.install("text", "INFO", stream=out)
    source = Path(py4j.java_gateway.__file__)
    code = compile("import logging; logging.info('Exception', exc_info=True)", source, "exec")
    exec(code)
    logging.getLogger().info("of another")
    assert "Exception" not in out.getvalue()
    assert "of another" in out.getvalue()


def test_warnings_and_threads_that_fail_are_lines_too():
    out = io.StringIO()
    logs.install("json", "INFO", stream=out)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("this will go away", DeprecationWarning, stacklevel=1)
    thread = threading.Thread(target=lambda: 1 / 0, name="worker-1")
    thread.start()
    thread.join()
    first, second = map(json.loads, out.getvalue().splitlines())
    assert (first["level"], "go away" in first["message"]) == ("WARNING", True)
    assert (second["level"], second["thread"]) == ("ERROR", "worker-1")
    assert "ZeroDivisionError" in second["exception"]


def test_every_message_of_the_program_can_be_taken_apart():
    odd = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call.args[0])}"
        for top in ("conf", "coordination", "sinks", "streaming")
        for path in sorted((ROOT / top).rglob("*.py"))
        for call in log_calls(path)
        if not isinstance(call.args[0], ast.Constant)
        or not TEMPLATE.fullmatch(str(call.args[0].value))
    ]
    assert not odd, "\n".join(odd)


def log_calls(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="logger" | "_log"), attr=level)):
                if level in LEVELS:
                    yield node
