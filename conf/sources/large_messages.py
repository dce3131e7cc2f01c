"""What TiCDC does with a row that is larger than ``max-message-bytes``, by its own parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from conf.masking import is_secret_name
from conf.problems import SettingError, require, unknown
from conf.secret_references import parse_reference
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
    f"{OPTION}=claim-check: rows in storage are read from a {STORAGE} that begins with file:// (a "
    "folder that all executors have), s3://, gs:// or azure://. Elsewhere, such a row becomes a "
    "dead letter"
)
_OPTIONS: Final = ("none", "handle-key-only", "claim-check")
# TiCDC's names of a store -> those of the library here.
_STORES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("s3", "s3a", "ks3"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gs"),
    **dict.fromkeys(("azure", "azblob"), "azure"),
    **dict.fromkeys(("abfs", "abfss"), "abfss"),
}
# TiCDC's parameters of a store -> the keys of [storage-options].
_STORE_OPTIONS: Final[Mapping[tuple[str, str], str]] = {
    ("s3", "access-key"): "AWS_ACCESS_KEY_ID",
    ("s3", "secret-access-key"): "AWS_SECRET_ACCESS_KEY",
    ("s3", "session-token"): "AWS_SESSION_TOKEN",
    ("s3", "region"): "AWS_REGION",
    ("s3", "endpoint"): "AWS_ENDPOINT_URL",
    ("gs", "credentials-file"): "GOOGLE_APPLICATION_CREDENTIALS",
    ("gs", "endpoint"): "GOOGLE_BASE_URL",
    ("azure", "account-name"): "AZURE_STORAGE_ACCOUNT_NAME",
    ("azure", "account-key"): "AZURE_STORAGE_ACCOUNT_KEY",
    ("azure", "sas-token"): "AZURE_STORAGE_SAS_TOKEN",
    ("azure", "endpoint"): "AZURE_ENDPOINT",
}


@dataclass(frozen=True, slots=True)
class LargeMessages:
    """``storage``: the URI where the rows are that were put into claim-check storage, without its
    parameters; None: they are not read. ``options``: what its parameters say, by the keys of
    ``[storage-options]``. ``is_raw``: a file has a row's value alone. ``loss``: what cannot be
    exact, in a sentence; None: nothing."""

    storage: str | None = None
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    is_raw: bool = False
    loss: str | None = None

    def told(self) -> dict[str, Any] | None:
        """How the rows are found, as JSON has it, without secrets (a reference to one is none).
        None: they are not read."""
        if self.storage is None:
            return None
        options = [[name, value] for name, value in self.options if _may_be_told(name, value)]
        return {"storage": self.storage, "options": options, "is_raw": self.is_raw}

    @classmethod
    def of_told(cls, told: Mapping[str, Any] | None) -> LargeMessages:
        if told is None:
            return NOTHING_LARGE
        options = tuple((name, value) for name, value in told["options"])
        return cls(storage=told["storage"], options=options, is_raw=told["is_raw"])


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
    try:
        parts = urlsplit(parameters.get(STORAGE, ""))
    except ValueError as error:
        raise SettingError(f"{STORAGE} is no URI") from error
    if parts.scheme == "file":
        path = unquote(parts.path)
        require(
            parts.netloc in ("", "localhost") and path.startswith("/") and "\0" not in path,
            f"{STORAGE} must look like file:///path",
        )
        return LargeMessages(storage=f"file://{quote(path)}", is_raw=is_raw)
    if parts.scheme not in _STORES:
        return LargeMessages(loss=_ELSEWHERE)
    store = _STORES[parts.scheme]
    user, at, _ = parts.netloc.rpartition("@")  # abfss://container@account has none
    require(
        parts.netloc != "" and (not at or (store == "abfss" and ":" not in user)),
        f"{STORAGE} must look like {parts.scheme}://bucket/path",
    )
    given = {n.lower().replace("_", "-"): v for n, v in parse_qsl(parts.query)}
    return LargeMessages(
        storage=f"{store}://{parts.netloc}{parts.path}".rstrip("/"),
        options=_options("azure" if store == "abfss" else store, given),
        is_raw=is_raw,
    )


def _may_be_told(name: str, value: str) -> bool:
    try:
        is_reference = parse_reference(name, value) is not None
    except SettingError:
        return False
    return is_reference or not (is_secret_name(name) or "@" in value)


def _options(store: str, given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Those that TiCDC alone needs, for writing, are left out."""
    names = ((name, _STORE_OPTIONS.get((store, name)), value) for name, value in given.items())
    made = {option: value for _, option, value in names if option is not None and value}
    endpoint = _STORE_OPTIONS[store, "endpoint"]
    if made.get(endpoint, "").startswith("http://"):
        made[f"{endpoint.partition('_')[0]}_ALLOW_HTTP"] = "true"
    if store == "s3" and "force-path-style" in given:
        is_path = boolean("force-path-style", given["force-path-style"])
        made["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = str(not is_path).lower()
    return tuple(sorted(made.items()))
