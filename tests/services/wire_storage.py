"""The recorded folders of TiCDC's storage sink: all that it wrote, step by step, two restarts of it
among them. What a step writes again has the same bytes, but for index files and `metadata`."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from streaming.source.storage.schema_files import read_schema_text
from tests.services import wire
from tests.services.wire import DATA

CANAL_JSON, CSV, CSV_OLD_VALUE = "storage-canal-json", "storage-csv", "storage-csv-old-value-hex"
PARAMETERS = {
    CANAL_JSON: "protocol=canal-json&enable-tidb-extension=true",
    CSV: "protocol=csv&include-commit-ts=true",
    CSV_OLD_VALUE: (
        "protocol=csv&include-commit-ts=true&delimiter=%7C&quote=&binary-encoding-method=hex"
        "&output-old-value=true&output-handle-key=true&date-separator=none"
    ),
}


@dataclass(frozen=True, slots=True)
class Step:
    """``files``: path -> bytes, in the order of the new writer: an index file after its data."""

    what: str
    ts: int
    files: dict[str, bytes]


@cache
def _recorded(variant: str) -> dict[str, Any]:
    with gzip.open(DATA / variant / "folder.json.gz", "rt", encoding="utf-8", newline="") as text:
        return dict(json.load(text))


def steps(variant: str) -> Iterator[Step]:
    found = _recorded(variant)
    for each in found["steps"]:
        names = sorted(each["files"], key=lambda path: path.endswith(".index"))
        files = {}
        for path in names:
            if path == "metadata":
                files[path] = each["metadata"].encode()
            elif path.endswith(".index"):
                files[path] = f"{_newest(path, names)}\n".encode()
            else:
                files[path] = found["files"][path].encode()
        yield Step(each["what"], each["ts"], files)


def steps_by_id(variant: str) -> Iterator[Step]:
    """The same rows as `use-table-id-as-path` lays them out: no file of a database, and a folder
    for each partition, with a schema file of its own."""
    of_tables = dict[str, bytes]()  # schema files by schema/table/version
    for each in steps(variant):
        found = dict[str, bytes]()
        for path, text in each.files.items():
            folders = path.split("/")
            if path == "metadata":
                found[path] = text
            elif len(folders) > 3 and folders[2] == "meta":
                version = folders[3].split("_")[1]
                of_tables[f"{folders[0]}/{folders[1]}/{version}"] = text
                found["/".join([_id_of(folders[1], version), *folders[2:]])] = text
            elif len(folders) > 3:
                _, table, version, *rest = folders
                is_partition = rest[0].isdigit() and len(rest[0]) < 10
                of = rest.pop(0) if is_partition else _id_of(table, version)
                if is_partition and "meta" not in rest:
                    path, text_of_it = _of_partition(of_tables[f"shop/{table}/{version}"])
                    found[f"{of}/meta/{path}"] = text_of_it
                found["/".join([of, version, *rest])] = text
        yield Step(each.what, each.ts, found)


def _id_of(table: str, version: str) -> str:
    ids = [
        each["tableID"]
        for each in wire.ddls()
        if each["table"] == table and each["commitTs"] <= int(version)
    ]
    return str(ids[-1])


def _of_partition(text: bytes) -> tuple[str, bytes]:
    """The name of the schema file without a DDL that TiCDC writes before a first row."""
    told = {**json.loads(text), "Query": "", "Type": 0}
    made = json.dumps(told, indent=4).encode()
    version, checksum = told["TableVersion"], read_schema_text(made).checksum
    return f"schema_{version}_{checksum:010}.json", made


def _newest(index: str, names: list[str]) -> str:
    """The name of the file that the index file names then."""
    folder = index.rpartition("/meta/")[0]
    return max(name.rpartition("/")[2] for name in names if name.rpartition("/")[0] == folder)


def write(step: Step, folder: Path) -> None:
    for path, text in step.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text)


def folder(
    variant: str,
    into: Path,
    until: Callable[[Step], bool] = lambda _step: False,
    steps: Callable[[str], Iterator[Step]] = steps,
) -> Path:
    """The folder as it was before the first step of which that is so."""
    for step in steps(variant):
        if until(step):
            break
        write(step, into)
    return into


def uri(variant: str, folder: Path | str) -> str:
    place = f"file://{folder}" if isinstance(folder, Path) else folder
    return f"{place}?{PARAMETERS[variant]}"
