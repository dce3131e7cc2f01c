"""Bytes as texts: many at a time, and one, they are the same."""

from __future__ import annotations

import base64
import random

import pyarrow as pa
import pytest

from sinks.types.casts.base64_texts import from_base64
from streaming.protocols.json_text.strict_json import Malformed
from streaming.protocols.open.encoded_cells import base64_bytes, from_quoted, quoted_bytes
from tests.streaming.protocols.open.reading import quoted


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", b""),
        ("plain é", "plain é".encode()),
        (r"\x89PNG\r\n\x1a\n\x00", b"\x89PNG\r\n\x1a\n\x00"),
        (r"\a\b\f\n\r\t\v\\\"", b'\a\b\f\n\r\t\v\\"'),
        (r"\u200b\U0001f600", "\u200b\U0001f600".encode()),
        (r"\\x41", rb"\x41"),
        ("\\", None),
        (r"\x4", None),
        (r"\x4g", None),
        (r"\ud800", None),
        (r"\u12_4", None),
        (r"\U00110000", None),
        (r"\q", None),
    ],
)
def test_what_go_quotes(text: str, value: bytes | None):
    try:
        one = quoted_bytes(text)
    except Malformed:
        one = None
    found, bad = from_quoted(pa.array([r"\x00", text, None, "z"]))
    assert found.to_pylist() == [b"\x00", value, None, b"z"]
    assert (bad is None) == (value is not None)
    assert one == value


@pytest.mark.parametrize(
    "text", ["A", "AA", "AAA", "A===", "====", "AA=A", "A A=", "AAAA=", "é==="]
)
def test_what_is_no_base64(text: str):
    with pytest.raises(Malformed):
        base64_bytes(text)
    found, bad = from_base64(pa.array(["AAAA", text, None, "AQ=="]))
    assert found.to_pylist() == [bytes(3), None, None, b"\x01"]
    assert bad is not None
    assert bad.tolist() == [False, True, False, False]


def test_random_bytes():
    dice = random.Random(3)
    values = [dice.choice((None, dice.randbytes(dice.randrange(9)))) for _ in range(500)]
    texts = [None if v is None else base64.b64encode(v).decode() for v in values]
    assert from_base64(pa.array(["x", *texts]).slice(1))[0].to_pylist() == values
    assert from_base64(pa.array([], pa.string()))[0].to_pylist() == []
    written = [None if v is None else quoted(v) for v in values]
    assert from_quoted(pa.array(["x", *written]).slice(1))[0].to_pylist() == values
