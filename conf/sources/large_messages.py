"""What TiCDC does with a row that is larger than ``max-message-bytes``, by its own parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from conf.problems import require, unknown
from conf.sources.kafka_security import boolean

OPTION: Final = "large-message-handle-option"
STORAGE: Final = "claim-check-storage-uri"
RAW: Final = "claim-check-raw-value"
COMPRESSION: Final = "large-message-handle-compression"
PARAMETERS: Final = (OPTION, STORAGE, RAW, COMPRESSION)
_COMPRESSIONS: Final = ("none", "lz4", "snappy")  # each message tells by its bytes which it has
_CUT: Final = (
    f"{OPTION}=handle-key-only: if a row is larger than max-message-bytes, TiCDC sends its key "
    "alone, and it becomes a dead letter here. claim-check sends it whole"
)
_ELSEWHERE: Final = (
    f"{OPTION}=claim-check: rows in storage are read from {STORAGE}=file:///path alone (a folder "
    "that all executors have). Elsewhere, such a row becomes a dead letter"
)
_OPTIONS: Final = ("none", "handle-key-only", "claim-check")


@dataclass(frozen=True, slots=True)
class LargeMessages:
    """``folder``: where the rows are that were put into claim-check storage; None: they are not
    read. ``is_raw``: a file has a row's value alone. ``loss``: what cannot be exact, in a sentence;
    None: nothing."""

    folder: str | None = None
    is_raw: bool = False
    loss: str | None = None


NOTHING_LARGE: Final = LargeMessages()


def parse_large_messages(parameters: Mapping[str, str]) -> LargeMessages:
    """Raises SettingError. No message repeats the storage's URI, which may hold a secret."""
    option = parameters.get(OPTION, "").lower() or "none"
    require(option in _OPTIONS, unknown(OPTION, option, _OPTIONS))
    compression = parameters.get(COMPRESSION, "").lower() or "none"
    require(compression in _COMPRESSIONS, unknown(COMPRESSION, compression, _COMPRESSIONS))
    is_raw = boolean(RAW, parameters.get(RAW) or "false")
    if option == "none":
        return NOTHING_LARGE
    if option == "handle-key-only":
        return LargeMessages(loss=_CUT)
    parts = urlsplit(parameters.get(STORAGE, ""))
    if parts.scheme != "file":
        return LargeMessages(loss=_ELSEWHERE)
    path = unquote(parts.path)
    require(
        parts.netloc in ("", "localhost") and path.startswith("/") and "\0" not in path,
        f"{STORAGE} must look like file:///path",
    )
    return LargeMessages(folder=path, is_raw=is_raw)
