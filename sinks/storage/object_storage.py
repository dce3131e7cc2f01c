"""A table's folder on S3, ADLS or Google Cloud Storage, through ``obstore``.

``create`` is the store's own conditional put (``If-None-Match: *``). The options are those that
``deltalake`` takes: ``AWS_…``, ``AZURE_…``, ``GOOGLE_…`` in any case, also from the environment.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar, cast
from urllib.parse import unquote, urlsplit

import obstore
import pyarrow as pa
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import ObjectStore, from_url

from coordination.errors import ConfigError
from sinks.storage.table_storage import Entry, Inside

LIST_CHUNK = 1000
DELETE_CHUNK = 1000
READ_AHEAD = 64 * 1024  # bytes: a Parquet footer in one request
RETRY_TIMEOUT = timedelta(seconds=30)
_XML = re.compile(r"<\?xml.*?(?:<Message>(.*?)</Message>.*)?$", re.DOTALL)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|)")
_UNITS = {
    "ms": timedelta(milliseconds=1),
    **dict.fromkeys(("s", ""), timedelta(seconds=1)),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
}
T = TypeVar("T")
_PREFIXES = ("aws_", "azure_", "google_")
_CLIENT_OPTIONS = frozenset(
    (
        *("allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type"),
        *("http1_only", "http2_only", "pool_idle_timeout", "pool_max_idle_per_host", "proxy_url"),
        *("proxy_ca_certificate", "proxy_excludes", "randomize_addresses", "timeout"),
        *("read_timeout", "user_agent"),
    )
)
# Of delta-rs' own log stores and credentials; a conditional put needs none of them.
_OF_DELTA_RS = frozenset(
    (
        *("aws_s3_allow_unsafe_rename", "allow_unsafe_rename", "mount_allow_unsafe_rename"),
        *("aws_force_credential_load", "aws_s3_pool_idle_timeout_seconds"),
        *("aws_sts_pool_idle_timeout_seconds", "aws_s3_get_internal_server_error_retries"),
        "object_store_concurrency_limit",
    )
)


def open_object_storage(uri: str, storage_options: Mapping[str, str]) -> ObjectStorage:
    """The folder at ``s3://bucket/path``, ``abfss://container@account…/path``, ``gs://…``. Raises
    ConfigError for options or a URI that are wrong."""
    parts = urlsplit(uri)
    config, client, retry = _sorted_options(storage_options)
    try:
        store = from_url(
            f"{parts.scheme}://{parts.netloc}",
            config=cast("Any", config),
            client_options=cast("Any", client or None),
            retry_config=cast("Any", retry),
        )
    except UnknownConfigurationKeyError as error:
        raise ConfigError(f"storage-options for {uri}: {_first_line(error)}") from error
    except (BaseError, ValueError) as error:
        raise ConfigError(f"cannot reach {uri}: {_first_line(error)}") from error
    return ObjectStorage(store, unquote(parts.path).strip("/"), uri)


def _sorted_options(
    options: Mapping[str, str],
) -> tuple[dict[str, str], dict[str, str], dict[str, Any]]:
    """The options of the store, of the HTTP client, and for retries."""
    lower = {name.lower(): value for name, value in options.items()}
    for name, value in os.environ.items():  # only the client's: obstore reads the store's itself
        if name.startswith("AWS_") and name.lower().removeprefix("aws_") in _CLIENT_OPTIONS:
            lower.setdefault(name.lower(), value)
    if lower.get("aws_s3_locking_provider"):
        raise ConfigError(
            "storage-options: AWS_S3_LOCKING_PROVIDER names a lock outside of the table, which the "
            "engine does not ask; take it out (S3's conditional puts do its work)"
        )
    config: dict[str, str] = {}
    client: dict[str, str] = {}
    retry: dict[str, Any] = {"max_retries": 10, "retry_timeout": RETRY_TIMEOUT}
    for name, value in lower.items():
        bare = next((name.removeprefix(p) for p in _PREFIXES if name.startswith(p)), name)
        if bare in _CLIENT_OPTIONS:
            client[bare] = value
        elif name == "max_retries":
            if not value.isdecimal():
                raise ConfigError(f"storage-options: max_retries is {value!r}, which is no number")
            retry["max_retries"] = int(value)
        elif name == "retry_timeout":
            retry["retry_timeout"] = _duration(name, value)
        elif name not in _OF_DELTA_RS and name != "aws_s3_locking_provider":
            config[name] = value
    return config, client, retry


def _duration(name: str, text: str) -> timedelta:
    """As delta-rs takes it, ``30s``; a number alone is seconds."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ConfigError(f"storage-options: {name} is {text!r}, which is no time such as '30s'")
    return float(found[1]) * _UNITS[found[2]]


class ObjectStorage:
    """Keys beneath a prefix of one bucket or container."""

    def __init__(self, store: ObjectStore, prefix: str, uri: str) -> None:
        self.uri = uri.rstrip("/")
        self._store = store
        self._prefix = f"{prefix}/" if prefix else ""

    def read(self, path: str) -> bytes:
        return self._ask(lambda at: bytes(obstore.get(self._store, at).bytes()), path)

    def read_range(self, path: str, start: int, end: int) -> bytes:
        return self._range(path, start, end)

    def inside(self, folder: str) -> Inside:
        beneath = (self._prefix + folder).rstrip("/") or None
        begin = f"{beneath}/" if beneath else ""
        try:
            found = obstore.list_with_delimiter(self._store, beneath)
        except FileNotFoundError:
            return Inside((), ())
        except BaseError as error:
            raise as_os_error(error, f"{self.uri}/{folder}") from error
        files = (meta["path"].removeprefix(begin) for meta in found["objects"])
        folders = (each.rstrip("/").removeprefix(begin) for each in found["common_prefixes"])
        return Inside(tuple(sorted(folders)), tuple(sorted(files)))

    def size(self, path: str) -> int | None:
        try:
            return self._ask(lambda at: obstore.head(self._store, at)["size"], path)
        except FileNotFoundError:
            return None

    def open_input(self, path: str) -> Any:
        size = self.size(path)
        if size is None:
            raise FileNotFoundError(f"{self.uri}/{path}")
        if size <= READ_AHEAD:
            return pa.BufferReader(self.read(path))
        return pa.PythonFile(_Ranges(self._range, path, size), mode="r")

    def list(self, prefix: str, start_after: str = "") -> Iterator[Entry]:
        beneath = (self._prefix + prefix).rstrip("/") or None
        offset = self._prefix + start_after if start_after else None
        try:
            for chunk in obstore.list(self._store, beneath, offset=offset, chunk_size=LIST_CHUNK):
                for meta in chunk:
                    path = meta["path"].removeprefix(self._prefix)
                    if path > start_after:  # a store may not know where to begin
                        modified_ms = int(meta["last_modified"].timestamp() * 1000)
                        yield Entry(path, meta["size"], modified_ms)
        except BaseError as error:
            raise as_os_error(error, f"{self.uri}/{prefix}") from error

    def write(self, path: str, data: bytes | memoryview | pa.Buffer) -> None:
        self._ask(lambda at: obstore.put(self._store, at, memoryview(data).cast("B")), path)

    replace = write

    def create(self, path: str, data: bytes | memoryview | pa.Buffer) -> bool:
        content = memoryview(data).cast("B")
        try:
            self._ask(lambda at: obstore.put(self._store, at, content, mode="create"), path)
        except FileExistsError:
            return False
        return True

    def delete(self, paths: Iterable[str]) -> None:
        wanted = [self._prefix + path for path in paths]
        for start in range(0, len(wanted), DELETE_CHUNK):
            self._delete(wanted[start : start + DELETE_CHUNK])

    def _delete(self, keys: Sequence[str]) -> None:
        try:
            obstore.delete(self._store, keys)
        except FileNotFoundError:  # one missing key may end the chunk: the other keys remain
            for key in keys if len(keys) > 1 else ():
                self._delete([key])
        except (BaseError, PermissionError) as error:
            raise as_os_error(error, self.uri) from error

    def sync_folder(self, path: str) -> None:
        """A put is durable when it is answered."""

    def _range(self, path: str, start: int, end: int) -> bytes:
        return self._ask(
            lambda at: bytes(obstore.get_range(self._store, at, start=start, end=end)), path
        )

    def _ask(self, ask: Callable[[str], T], path: str) -> T:
        try:
            return ask(self._prefix + path)
        except (BaseError, FileNotFoundError, PermissionError, ValueError) as error:
            raise as_os_error(error, f"{self.uri}/{path}") from error


class _Ranges(io.RawIOBase):
    """A remote file for Parquet: each read is one request of just that range."""

    def __init__(self, read: Callable[[str, int, int], bytes], path: str, size: int) -> None:
        super().__init__()
        self._read = read
        self._path = path
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        wanted = self._size if size is None or size < 0 else self._at + size
        end = min(wanted, self._size)
        found = self._read(self._path, self._at, end) if end > self._at else b""
        self._at += len(found)
        return found

    def readall(self) -> bytes:
        return self.read()


def as_os_error(error: BaseException, at: str) -> OSError:
    """A store's error as the one that a local file system would raise."""
    text = f"{at}: {_first_line(error)}"
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(text)
    if isinstance(error, AlreadyExistsError):
        return FileExistsError(text)
    if isinstance(error, PermissionError | PermissionDeniedError | UnauthenticatedError):
        return PermissionError(text)
    return OSError(text)


def _first_line(error: BaseException) -> str:
    """The error's message on one line, without ``obstore``'s debug output and S3's XML."""
    text = str(error).partition("\n\nDebug source:")[0]
    text = _XML.sub(lambda found: found[1] or "", text)
    return " ".join(text.split())
