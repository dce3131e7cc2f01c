"""Cells of Maxwell's daemon (``contract.Cells.MAXWELL``): it writes documents of JSON columns among
the other values, as they are."""

from __future__ import annotations

import json
from typing import Any

from sinks.types.casts.maxwell_cells import MARK, is_like_a_document
from streaming.protocols.json_text.strict_json import Malformed, Number


def text_cell(text: str) -> str:
    """The cell of a JSON string."""
    return MARK + text if is_like_a_document(text) else text


def document_text(value: Any) -> str:
    """A value of JSON as the database shows it; a SET's names are an array. Raises Malformed."""
    if isinstance(value, dict):
        if getattr(value, "twice", None):
            raise Malformed
        members = (f"{_quoted(name)}: {document_text(each)}" for name, each in value.items())
        return "{" + ", ".join(members) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(document_text, value)) + "]"
    if isinstance(value, Number):
        return str(value)
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
