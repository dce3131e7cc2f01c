"""Which storage a table's URI names: a local folder, or one on an object store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from coordination.errors import TidelakeError
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
    from sinks.storage.object_storage import open_object_storage

    return open_object_storage(uri, storage_options)


@dataclass(frozen=True, slots=True)
class StorageOpener:
    """Opens folders by their URIs, also in another process that it was sent to."""

    options: Mapping[str, str] = field(repr=False)  # they may hold a key

    def __call__(self, uri: str) -> Storage:
        return open_storage(uri, self.options)
