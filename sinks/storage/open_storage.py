"""Which storage a table's URI names: a local folder, or one on an object store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from coordination.errors import ConfigError, TidelakeError
from sinks.storage.local_storage import LocalStorage
from sinks.storage.table_storage import ReadStorage, TableStorage

_OF_STORES: Final = ("AWS_", "AZURE_", "GOOGLE_")


def store_variables() -> dict[str, str]:
    """This process's environment as far as object stores read it, for processes elsewhere."""
    return {name: each for name, each in os.environ.items() if name.startswith(_OF_STORES)}


class Storage(TableStorage, ReadStorage, Protocol):
    """Both."""


def open_storage(uri: str, storage_options: Mapping[str, str]) -> Storage:
    """The folder at an absolute path, a ``file://`` URI or an object store's URI. Raises
    TidelakeError (ConfigError) for other URIs and for wrong options."""
    scheme = urlsplit(uri).scheme
    if scheme == "file":
        return LocalStorage(unquote(urlsplit(uri).path))
    if scheme == "" or uri.startswith("/"):
        if not uri.startswith("/"):
            raise TidelakeError(f"{uri!r} is no table: give an absolute path or a URI")
        return LocalStorage(uri)
    check_endpoint(uri, storage_options)
    from sinks.storage.object_storage import open_object_storage

    return open_object_storage(uri, storage_options)


def check_endpoint(uri: str, storage_options: Mapping[str, str]) -> None:
    """Raise ConfigError for one that is no URL, at which the clients of stores panic, with a stack
    trace."""
    given_here = {**store_variables(), **storage_options}
    options = {name.lower(): each for name, each in given_here.items()}
    names = ("aws_endpoint_url", "aws_endpoint", "endpoint_url", "endpoint")
    for name in names if uri.startswith("s3") else ():
        if (given := options.get(name)) and not given.startswith(("http://", "https://")):
            raise ConfigError(
                f"storage-options: {name.upper()} is {given!r}, which is no URL: give it as "
                "https://host:port"
            )


@dataclass(frozen=True, slots=True)
class StorageOpener:
    """Opens folders by their URIs, also in another process that it was sent to."""

    options: Mapping[str, str] = field(repr=False)  # they may hold a key

    def __call__(self, uri: str) -> Storage:
        return open_storage(uri, self.options)
