"""The decoder of each protocol, by its name in the source URI."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from streaming.protocols.canal_json.decoder import decode
from streaming.protocols.canal_json.disguise import disguise
from streaming.protocols.contract import Decoder

CANAL_JSON = "canal-json"
_DECODERS = {CANAL_JSON: decode}
_DISGUISES = {CANAL_JSON: disguise}


def decoder_of(protocol: str, *, start_ts: int = 0) -> Decoder:
    """``start_ts``: rows and DDLs at or below it are not needed. The result can be pickled. Raises
    KeyError for a protocol that `conf` should have refused."""
    return partial(_DECODERS[protocol], start_ts=start_ts)


def disguise_of(protocol: str, seed: int) -> Callable[[bytes], bytes]:
    """The function that exchanges the letters of a message's values (`canal_json/disguise.py`)."""
    return _DISGUISES[protocol](seed)
