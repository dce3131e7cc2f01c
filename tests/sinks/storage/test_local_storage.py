"""What a commit rests on, of every storage: put if absent, durable writes, listings in order."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordination.errors import ConfigError, TidelakeError
from sinks.merge_on_write.log.commit import prove_put_if_absent
from sinks.storage.local_storage import LocalStorage
from sinks.storage.open_storage import Storage, open_storage
from sinks.storage.table_storage import Inside, TableStorage
from tests.services.s3_server import S3Server

FIRST = "_delta_log/00000000000000000000.json"


def test_what_was_written_is_read(storage: TableStorage):
    storage.write("x=a b/part ~1 é.parquet", pa.py_buffer(b"some bytes"))
    storage.write("empty", b"")
    storage.sync_folder("x=a b")
    assert storage.read("x=a b/part ~1 é.parquet") == b"some bytes"
    assert storage.size("x=a b/part ~1 é.parquet") == 10
    assert storage.size("nothing") is None
    assert storage.read("empty") == b""


def test_a_folder_of_another_writer_is_read(storage: Storage):
    for path in ("shop/a b/1", "shop/a b/2", "shop/x", "metadata"):
        storage.write(path, b"0123456789")
    assert storage.inside("") == Inside(("shop",), ("metadata",))
    assert storage.inside("shop") == Inside(("a b",), ("x",))
    assert storage.inside("nothing") == Inside((), ())
    assert storage.read_range("shop/x", 3, 6) == b"345"
    assert storage.read_range("shop/x", 8, 99) == b"89"
    with pytest.raises(FileNotFoundError):
        storage.read_range("shop/y", 0, 1)
    assert [each.path for each in storage.list("shop/", "shop/a b/1")] == ["shop/a b/2", "shop/x"]


def test_what_is_not_there_is_said_in_one_way(storage: TableStorage):
    with pytest.raises(FileNotFoundError):
        storage.read("nothing")
    with pytest.raises(FileNotFoundError):
        storage.open_input("nothing.parquet")
    assert list(storage.list("_delta_log/")) == []


def test_create_makes_a_file_once(storage: TableStorage):
    assert storage.create(FIRST, b"first")
    assert not storage.create(FIRST, b"second")
    assert storage.read(FIRST) == b"first"
    assert [each.path for each in storage.list("")] == [FIRST]


def test_of_many_that_create_one_wins(storage: TableStorage):
    with ThreadPoolExecutor(8) as threads:
        for number in range(4):
            path = f"_delta_log/{number:020}.json"
            made = list(threads.map(lambda n, p=path: storage.create(p, bytes([n])), range(8)))
            assert made.count(True) == 1
            assert storage.read(path) == bytes([made.index(True)])


def test_replace_puts_over_what_is_there(storage: TableStorage):
    storage.replace("_delta_log/_last_checkpoint", b"1")
    storage.replace("_delta_log/_last_checkpoint", b"22")
    assert storage.read("_delta_log/_last_checkpoint") == b"22"
    assert [each.path for each in storage.list("")] == ["_delta_log/_last_checkpoint"]


def test_listings_are_by_path_and_begin_where_they_are_told(storage: TableStorage):
    paths = ["_delta_log/1.json", "_delta_log/10.json", "_delta_log/_sidecars/a", "_delta_log2/x"]
    for path in [*reversed(paths), "part.parquet"]:
        storage.write(path, b"123")
    assert [each.path for each in storage.list("")] == [*paths, "part.parquet"]
    assert [each.path for each in storage.list("_delta_log/")] == paths[:3]
    after = [each.path for each in storage.list("_delta_log/", start_after="_delta_log/1.json")]
    assert after == paths[1:3]
    (entry,) = storage.list("_delta_log2/")
    assert entry.size == 3
    assert abs(entry.modified_ms - os.stat("/proc/self").st_mtime * 1000) < 3_600_000


def test_deleting_what_is_gone_is_no_error(storage: TableStorage):
    for name in ("a", "b", "c"):
        storage.write(name, b"x")
    storage.delete(["a", "nothing", "c"])
    assert [each.path for each in storage.list("")] == ["b"]
    storage.delete([])


@pytest.mark.parametrize("rows", [10, 100_000])
def test_parquet_is_read_by_columns(storage: TableStorage, rows: int):
    table = pa.table({"id": range(rows), "text": [f"row {n}" for n in range(rows)]})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    storage.write("part.parquet", sink.getvalue())
    with storage.open_input("part.parquet") as source, pq.ParquetFile(source) as file:
        assert file.metadata.num_rows == rows
        assert file.read(columns=["id"]).equals(table.select(["id"]))


def test_a_storage_is_asked_whether_it_puts_if_absent(storage: TableStorage):
    prove_put_if_absent(storage)
    assert list(storage.list("")) == []


def test_a_storage_that_overwrites_is_refused(local: LocalStorage):
    class Overwriting(LocalStorage):
        def create(self, path: str, data: bytes) -> bool:
            self.replace(path, data)
            return True

    with pytest.raises(TidelakeError, match="makes a file twice"):
        prove_put_if_absent(Overwriting(local.uri))


def test_a_lost_answer_does_not_tell_against_a_storage(local: LocalStorage):
    class Forgetful(LocalStorage):
        """The client tries again."""

        def create(self, path: str, data: bytes) -> bool:
            made = super().create(path, data)
            return made and data != b"first"

    prove_put_if_absent(Forgetful(local.uri))


def test_a_local_table_is_named_by_path_or_uri(tmp_path: Path):
    open_storage(f"{tmp_path}/a b", {}).write("x", b"1")
    assert open_storage(f"file://{tmp_path}/a%20b", {}).read("x") == b"1"
    with pytest.raises(TidelakeError, match="absolute path"):
        open_storage("some/folder", {})


@pytest.mark.parametrize("form", ["upper", "lower", "environment"])
def test_options_of_s3_are_those_of_deltalake(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, form: str
):
    options = {"upper": s3.options, "lower": {k.lower(): v for k, v in s3.options.items()}}
    if form == "environment":
        for name, value in s3.options.items():
            monkeypatch.setenv(name, value)
    found = open_storage(f"s3://{s3.bucket}/{form}", options.get(form, {}))
    assert found.create("x", b"1")
    more = {
        **s3.options,
        "aws_s3_allow_unsafe_rename": "true",
        "timeout": "20s",
        "max_retries": "2",
    }
    assert open_storage(f"s3a://{s3.bucket}/{form}", more).read("x") == b"1"


def test_options_that_mean_nothing_are_refused(s3: S3Server):
    with pytest.raises(ConfigError, match="aws_acces_key"):
        open_storage("s3://lake/x", {**s3.options, "AWS_ACCES_KEY": "typo"})
    with pytest.raises(ConfigError, match="AWS_S3_LOCKING_PROVIDER"):
        open_storage("s3://lake/x", {**s3.options, "AWS_S3_LOCKING_PROVIDER": "dynamodb"})


@pytest.mark.parametrize("options", [{"max_retries": "many"}, {"retry_timeout": "soon"}])
def test_retries_that_are_no_number_are_refused_in_one_line(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(options))} is '.*', which is no "):
        open_storage("s3://lake/x", options)


@pytest.mark.parametrize("text", ["500ms", "30s", "30", "1.5m", "2 h"])
def test_a_time_to_retry_is_read_as_delta_rs_reads_it(text: str) -> None:
    assert open_storage("s3://lake/x", {"retry_timeout": text}).uri == "s3://lake/x"


def test_a_bucket_that_is_not_there_is_said_in_one_line(s3: S3Server):
    storage = open_storage("s3://nowhere/x", s3.options)
    with pytest.raises(OSError, match="bucket does not exist") as caught:
        storage.create("a", b"")
    assert "\n" not in str(caught.value)


def test_hadoop_finds_no_checksum_of_other_bytes(local: LocalStorage):
    """Spark's local file system checks ``.<name>.crc`` where there is one."""
    local.write("_delta_log/_last_checkpoint", b"old")
    local.write("_delta_log/._last_checkpoint.crc", b"of the old")
    local.replace("_delta_log/_last_checkpoint", b"new")
    assert [each.path for each in local.list("")] == ["_delta_log/_last_checkpoint"]
    local.write("part.parquet", b"x")
    local.write(".part.parquet.crc", b"x")
    local.delete(["part.parquet"])
    assert [each.path for each in local.list("")] == ["_delta_log/_last_checkpoint"]


KILLED = """
import os, sys
from sinks.storage.local_storage import LocalStorage
def die(*_): os._exit(9)
os.link = die
LocalStorage(sys.argv[1]).create("_delta_log/00000000000000000000.json", b"half of a commit")
"""


def test_a_writer_that_is_killed_before_the_link_leaves_no_commit(local: LocalStorage):
    done = subprocess.run([sys.executable, "-c", KILLED, local.uri], check=False, timeout=300)
    assert done.returncode == 9
    (left,) = local.list("")
    assert left.path.startswith("_delta_log/.")
    assert local.create(FIRST, b"whole")


def test_a_commit_is_on_the_disk_before_it_is_in_the_folder(
    local: LocalStorage, monkeypatch: pytest.MonkeyPatch
):
    """Bytes, then name, then folder: whatever a power cut leaves is whole or not there."""
    steps: list[str] = []
    sync, link = os.fsync, os.link

    def fsync(descriptor: int) -> None:
        at = os.readlink(f"/proc/self/fd/{descriptor}")
        steps.append("sync of a folder" if os.path.isdir(at) else "sync of a file")
        sync(descriptor)

    def linked(source: str, target: str) -> None:
        steps.append("link")
        link(source, target)

    local.write(f"{FIRST}.other", b"")
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", linked)
    assert local.create(FIRST, b"first")
    assert steps == ["sync of a file", "link", "sync of a folder"]
    steps.clear()
    local.write("new/deep/part.parquet", b"x")
    assert steps == ["sync of a folder", "sync of a folder", "sync of a file"]


def test_a_full_disk_leaves_nothing(local: LocalStorage, monkeypatch: pytest.MonkeyPatch):
    def full(_descriptor: int, _data: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    for attempt in (local.write, local.create, local.replace):
        with pytest.raises(OSError, match="No space left"):
            attempt("_delta_log/x.json", b"data")
    assert list(local.list("")) == []
