"""The URI of a folder that TiCDC's storage sink writes: on a disk, or in an object store.

``file:///cdc?protocol=canal-json&enable-tidb-extension=true``, ``s3://bucket/prefix?protocol=csv&…``

The parameters are those of TiCDC's own sink URI, and besides those of its ``[sink]`` and
``[sink.csv]`` by the same names. Some say what is in the files: they are used. Some only steer
TiCDC's writers: they are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, cast
from urllib.parse import SplitResult, quote, unquote

from conf.forms import is_time_zone
from conf.problems import Problems, require, unknown
from conf.secret_references import parse_reference
from conf.sources.csv_format import PARAMETERS as CSV
from conf.sources.csv_format import CsvFormat, parse_csv_format
from conf.sources.kafka_security import boolean
from conf.sources.large_messages import NOTHING_LARGE, LargeMessages
from conf.sources.source_parameters import RAW_EVENTS, has_old_rows

LOCAL: Final = "file"
# The schemes that TiCDC knows -> those of the storage.
STORES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "s3": "s3",
        **dict.fromkeys(("gs", "gcs"), "gs"),
        **dict.fromkeys(("azure", "azblob"), "az"),
        **dict.fromkeys(("abfs", "abfss"), "abfss"),
    }
)
SCHEMES: Final = (LOCAL, *STORES)
PROTOCOLS: Final = ("canal-json", "csv")
BY_ID: Final = "use-table-id-as-path"
Separator = Literal["none", "year", "month", "day"]
SEPARATORS: Final[tuple[Separator, ...]] = ("none", "year", "month", "day")
# Parameters of the store in TiCDC's words -> options of the storage.
_OPTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "region": "AWS_REGION",
        "access-key": "AWS_ACCESS_KEY_ID",
        "secret-access-key": "AWS_SECRET_ACCESS_KEY",
        "session-token": "AWS_SESSION_TOKEN",
        "credentials-file": "GOOGLE_SERVICE_ACCOUNT",
        "account-name": "AZURE_STORAGE_ACCOUNT_NAME",
        "account-key": "AZURE_STORAGE_ACCOUNT_KEY",
        "sas-token": "AZURE_STORAGE_SAS_TOKEN",
    }
)
_ENDPOINTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "s3": "AWS_ENDPOINT_URL",
        "gs": "GOOGLE_BASE_URL",
        **dict.fromkeys(("az", "abfss"), "AZURE_STORAGE_ENDPOINT"),
    }
)
_ENDPOINT: Final = "endpoint"
SECRETS: Final = ("access-key", "secret-access-key", "session-token", "account-key", "sas-token")
_READ: Final = (
    *("protocol", "enable-tidb-extension", "time-zone", "date-separator", "read-to-end"),
    *(BY_ID, "terminator", "force-path-style", RAW_EVENTS),
    *CSV,
    *_OPTIONS,
    _ENDPOINT,
)
# About TiCDC's writers and the store's own work, or about what every row here tells itself.
_IGNORED: Final = (
    *("worker-count", "flush-interval", "file-size", "file-index-digit", "output-column-id"),
    *("file-expiration-days", "file-cleanup-cron-spec", "flush-concurrency", "spool-disk-quota"),
    *("enable-partition-separator", "enable-table-across-nodes", "transaction-atomicity"),
    *("storage-class", "sse", "sse-kms-key-id", "acl", "predefined-acl", "encryption-scope"),
    *("use-accelerate-endpoint", "external-id", "access-tier", "provider", "object-lock-enabled"),
    *("content-compatible", "only-output-updated-columns", "delete-only-output-handle-key-columns"),
    *("output-row-key", "encoder-concurrency", "partition-num"),
    *("max-message-bytes", "max-batch-size", "spool-base-dir", "safe-mode"),
)
_NOT_BUILT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "role-arn": (
            "role-arn is not built here: give the capture that role in its environment "
            "(AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE, or the machine's own role)"
        ),
        "profile": (
            "profile is not built here: give access-key and secret-access-key, or the variables "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ),
        "encryption-key": (
            "encryption-key is not built: files that are encrypted with a customer's own key cannot"
            " be read here. Let TiCDC write them with an encryption-scope, or without"
        ),
    }
)
KNOWN: Final = (*_READ, *_IGNORED, *_NOT_BUILT)
_FORM: Final = "it must look like s3://bucket/prefix?protocol=csv or file:///path?protocol=csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    """``folder``: an absolute path, or ``s3://bucket/prefix``, without a trailing slash. ``csv``:
    how rows are written, of the protocol csv. ``has_end``: nothing more comes into the folder."""

    folder: str
    protocol: str
    csv: CsvFormat | None = None
    date_separator: Separator = "day"
    by_id: bool = False
    time_zone: str = "UTC"  # the TiCDC server's `tz`: the zone of TIMESTAMP texts
    has_end: bool = False
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # they may be secrets
    large: LargeMessages = NOTHING_LARGE  # nothing is cut to its key in a file

    @property
    def name(self) -> str:
        """The folder's own name, or the bucket's."""
        return self.folder.rstrip("/").rpartition("/")[2]

    @property
    def uri(self) -> str:
        """Without options."""
        place = self.folder if "://" in self.folder else f"file://{quote(self.folder)}"
        return f"{place}?protocol={self.protocol}"

    @property
    def agreed(self) -> dict[str, str | int | None]:
        """As for Kafka."""
        told = {} if self.csv is None else self.csv.told
        if self.by_id:
            told[BY_ID] = "true"
        return {"folder": self.folder, "date-separator": self.date_separator, **told}


def is_storage_uri(parts: SplitResult) -> bool:
    """A file is a recording, and a folder is not."""
    return parts.scheme in STORES or (
        parts.scheme == LOCAL and not unquote(parts.path).endswith((".jsonl", ".jsonl.gz"))
    )


def parse_storage_uri(parts: SplitResult, parameters: Mapping[str, str]) -> StorageSettings:
    """Whether the folder exists is not checked here. Raises SettingError."""
    problems = Problems()
    protocol, separator, csv = "", "day", None
    with problems.noted():
        check_storage_names(parameters)
    with problems.noted():
        protocol = _protocol(parameters)
    if protocol == "csv":
        with problems.noted():
            csv = parse_csv_format(parameters)
    with problems.noted():
        has_old_rows(protocol, parameters)
    with problems.noted():
        separator = parameters.get("date-separator", "").lower() or "day"
        says = unknown("date-separator", separator, SEPARATORS, most_listed=len(SEPARATORS))
        require(separator in SEPARATORS, says)
    zone = parameters.get("time-zone", "UTC")
    with problems.noted():
        hint = " ('+' is written %2B in a URI)" if zone.startswith(" ") else ""
        says = f"time-zone={zone}: not a zone such as Asia/Shanghai or UTC{hint}"
        require(is_time_zone(zone), says)
    folder, options, has_end, by_id = "", dict[str, str](), False, False
    with problems.noted():
        folder = _folder(parts)
    with problems.noted():
        options = _options(STORES.get(parts.scheme, LOCAL), parameters)
    with problems.noted():
        has_end = boolean("read-to-end", parameters.get("read-to-end") or "false")
    with problems.noted():
        by_id = boolean(BY_ID, parameters.get(BY_ID) or "false")
    problems.refuse()
    return StorageSettings(
        folder=folder,
        protocol=protocol,
        csv=csv,
        date_separator=cast(Separator, separator),
        by_id=by_id,
        time_zone=zone,
        has_end=has_end,
        options=tuple(sorted(options.items())),
    )


def check_storage_names(parameters: Mapping[str, str]) -> None:
    """Raise one SettingError for all parameters that are unknown or not built."""
    problems = Problems()
    for name, value in parameters.items():
        with problems.noted():
            require(name in KNOWN, unknown("parameter", name, KNOWN))
            require(name not in _NOT_BUILT or not value, _NOT_BUILT.get(name, ""))
    problems.refuse()


def _protocol(parameters: Mapping[str, str]) -> str:
    protocol = parameters.get("protocol", "").lower()
    choices = " or ".join(PROTOCOLS)
    require(protocol != "", f"protocol is missing: give that of the changefeed, {choices}")
    require(
        protocol in PROTOCOLS,
        f"protocol={protocol} is none of files: TiCDC writes {choices} into a storage",
    )
    extension = parameters.get("enable-tidb-extension", "false")
    require(
        protocol != "canal-json" or boolean("enable-tidb-extension", extension),
        "enable-tidb-extension=true is needed: without it the rows carry no commit-ts; set it in "
        "the TiCDC changefeed and here",
    )
    return protocol


def _folder(parts: SplitResult) -> str:
    path = unquote(parts.path)
    require("\0" not in path and ".." not in path.split("/"), f"{path!r} cannot be a folder")
    if parts.scheme == LOCAL:
        require(
            parts.netloc in ("", "localhost") and path.startswith("/"),
            f"file://{parts.netloc}{path} is relative: write file:/// and an absolute path",
        )
        require(path.strip("/") != "", f"no path; {_FORM}")
        return path.rstrip("/")
    user_info, at, _ = parts.netloc.rpartition("@")  # abfss://container@account has none
    require(
        not at or (":" not in user_info and STORES[parts.scheme] == "abfss"),
        "credentials do not belong before the host: use access-key and secret-access-key, or the "
        "environment",
    )
    require(parts.netloc != "", f"{parts.scheme}:// needs a bucket or container; {_FORM}")
    return f"{STORES[parts.scheme]}://{parts.netloc}{parts.path}".rstrip("/")


def _options(store: str, parameters: Mapping[str, str]) -> dict[str, str]:
    """Raises SettingError. A secret may be a reference, which each capture looks up."""
    found = {}
    for name, option in _OPTIONS.items():
        if text := parameters.get(name):
            if name in SECRETS:
                parse_reference(name, text)
            found[option] = text
    if (endpoint := parameters.get(_ENDPOINT)) and store in _ENDPOINTS:
        found[_ENDPOINTS[store]] = endpoint
        if endpoint.startswith("http://"):
            found[f"{_ENDPOINTS[store].partition('_')[0]}_ALLOW_HTTP"] = "true"
    if style := parameters.get("force-path-style"):
        is_hosted = not boolean("force-path-style", style)
        found["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = str(is_hosted).lower()
    return found
