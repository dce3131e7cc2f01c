"""Requests to a capture from outside, such as "drain" from the command line (docs/cluster.md 15).

    request  {"method": "drain", "params": {…}}
    reply    {"result": {…}}, or {"error": "a sentence"}

What has no key in etcd (drain a capture, move a table, rebalance, list what processors do) is asked
of the owner. Which methods there are is for the handler to say.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from conf.masking import masked
from coordination.errors import TidelakeError

logger = logging.getLogger(__name__)

# On a thread of the server: it hands the call to the coordination thread, and waits there with a
# time limit of its own. A TidelakeError that it raises is what the caller reads.
Handle = Callable[[str, dict[str, Any]], dict[str, Any]]


class CallRefused(TidelakeError):
    """The capture that was called answered with this sentence."""


def no_calls(method: str, _params: dict[str, Any]) -> dict[str, Any]:
    """The handler of a capture that has none."""
    raise CallRefused(f"this capture takes no calls, {method!r} neither")


class OwnerCall(NamedTuple):
    method: str
    params: dict[str, Any]


def dump_call(method: str, params: Mapping[str, Any]) -> bytes:
    return json.dumps({"method": method, "params": dict(params)}).encode()


def load_call(data: bytes) -> OwnerCall:
    """Raises CallRefused."""
    try:
        document = json.loads(data)
        method, params = document["method"], document.get("params") or {}
        if isinstance(method, str) and isinstance(params, dict):
            return OwnerCall(method, params)
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise CallRefused("this is no request: expected a method and its params")


def answer_call(handle: Handle, data: bytes) -> bytes:
    """Have the request handled. Whatever happens, the caller gets a reply."""
    try:
        call = load_call(data)
        return json.dumps({"result": handle(call.method, call.params)}).encode()
    except TidelakeError as error:
        return _dump_error(str(error))
    except Exception as error:
        logger.exception("an owner call failed")
        return _dump_error(f"the capture failed at this request: {error!r}")


def _dump_error(sentence: str) -> bytes:
    return json.dumps({"error": masked(sentence)}).encode()


def load_reply(data: bytes) -> dict[str, Any]:
    """Raises CallRefused with the other side's sentence."""
    try:
        document = json.loads(data)
        if "error" not in document:
            return dict(document["result"])
        sentence = str(document["error"])
    except (ValueError, KeyError, TypeError):
        sentence = "the reply cannot be read: is the capture of another version?"
    raise CallRefused(sentence)
