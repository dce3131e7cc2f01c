"""The sink URI ``delta://…`` or ``delta+s3://…``: where the warehouse is."""

from __future__ import annotations

from urllib.parse import quote, unquote

from conf.problems import SettingError, require
from conf.sources.source_parameters import split_uri

STORES = {"s3": "s3", "s3a": "s3", "abfss": "abfss", "abfs": "abfss", "gs": "gs"}
TICDC_SINKS = ("kafka", "kafka+ssl", "pulsar", "pulsar+ssl")  # TiCDC's sinks, never a warehouse
FORM = "it must look like delta:///path/to/warehouse or delta+s3://bucket/path"


def parse_sink_uri(uri: str) -> str:
    """The warehouse: an absolute local path or an object store URI, without a trailing slash.
    Raises SettingError."""
    parts = split_uri(uri)
    require(
        parts.scheme not in TICDC_SINKS,
        "that is --source-uri here: Tidelake reads the topic that TiCDC writes. --sink-uri says "
        "where the tables go: delta:///path/to/warehouse",
    )
    require(
        parts.query == "" and parts.fragment == "", "it takes no parameters: put them in the file"
    )
    if parts.scheme == "delta":
        return _local(parts.netloc, unquote(parts.path))
    format_, _, store = parts.scheme.partition("+")
    require(format_ == "delta", f"{parts.scheme or 'a bare path'} is not a Delta sink; {FORM}")
    if store == "catalog":
        raise SettingError(
            "delta+catalog:// is not built yet: use delta:///path or an object store"
        )
    if store in ("hdfs", "viewfs"):
        raise SettingError(
            f"delta+{store}:// is not built yet: the control tables are written by delta-rs, "
            "which does not speak to HDFS"
        )
    require(
        store in STORES, f"delta+{store}:// is not known: use one of {', '.join(sorted(STORES))}"
    )
    user_info, at, _ = parts.netloc.rpartition("@")  # abfss://container@account has none
    require(
        not at or (":" not in user_info and STORES[store] == "abfss"),
        "credentials do not belong into it: put them into the environment or [storage-options]",
    )
    require(parts.netloc != "", f"delta+{store}:// needs a bucket or container; {FORM}")
    return f"{STORES[store]}://{parts.netloc}{parts.path}".rstrip("/")


def sink_uri_of(warehouse: str) -> str:
    """The URI that ``parse_sink_uri`` reads so."""
    return f"delta+{warehouse}" if "://" in warehouse else f"delta://{quote(warehouse)}"


def _local(host: str, path: str) -> str:
    require(
        host in ("", "localhost"),
        f"delta://{host}{path} is relative: write delta:/// and an absolute path",
    )
    require(path.rstrip("/") != "", f"no path; {FORM}")
    require(path.startswith("/"), f"{path!r} is relative: write delta:/// and an absolute path")
    require(".." not in path.split("/"), "the path must not contain '..'")
    return path.rstrip("/")
