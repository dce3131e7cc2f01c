"""What operators read when storage fails: one sentence that says what to do, from both engines."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from coordination.errors import TidelakeError, TryAgain
from sinks.merge_on_write.engine import MergeOnWriteEngine
from sinks.spark.merge_engine import SparkEngine
from sinks.spark.session_settings import SESSION_CONF
from sinks.storage.errors import (
    StorageAway,
    StorageRefuses,
    is_storage_error,
    one_sentence,
    storage_error,
)
from sinks.target.engine_port import Applied, Engine
from sinks.target.target_table import inspect, refused
from tests.contracts.engine_contract import NAMED, EngineLab, upsert

S3, AZURE, GCS, DISK = "s3://lake/shop", "abfss://c@a.dfs.core.windows.net/x", "gs://b/x", "/lake"
NOBODY = 65534
RED = "\n          \x1b[31m↳\x1b[0m "
OF_THE_JVM = """An error occurred while calling o185.save.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2856)
Caused by: {}
\t... 12 more
"""


@pytest.mark.parametrize(
    ("uri", "raised", "says"),
    [
        (
            S3,
            f"Kernel error -> Operation not supported{RED}an error occurred while loading "
            f"credentials{RED}failed to load IMDS session token{RED}request forbidden\n",
            "Set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION",
        ),
        (
            AZURE,
            f"Generic MicrosoftAzure error{RED}Error performing token request{RED}403 Forbidden",
            "Set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
        ),
        (GCS, f"Generic GCS error{RED}Error performing token request", "GOOGLE_APPLICATION"),
        (S3, "<Code>InvalidAccessKeyId</Code>", "no valid credentials"),
        (S3, "403 Forbidden: <Code>AccessDenied</Code>", "these credentials read, write"),
        (S3, "404 Not Found: <Code>NoSuchBucket</Code>", "no such bucket"),
        (S3, "400 Bad Request: <Code>InvalidBucketName</Code>", "no such bucket"),
        (S3, "Generic S3 error Missing SecretAccessKey", "no valid credentials"),
        (S3, "403 Forbidden: <Code>RequestTimeTooSkewed</Code>", "the clock of this machine"),
        (
            S3,
            "Generic S3 error: 400 Bad Request: <Code>AuthorizationHeaderMalformed</Code><Message>"
            "the region 'us-east-1' is wrong; expecting 'eu-west-1'</Message>",
            "another region, eu-west-1. Set AWS_REGION",
        ),
        (S3, "redirect without LOCATION, an incorrectly configured region", "another region. Set"),
        (S3, "PUT http://s3/a in 8.2µs - HTTP error: builder error", "Set AWS_ALLOW_HTTP=true"),
        (S3, "HTTP error builder error URL scheme is not allowed", "Set AWS_ALLOW_HTTP=true"),
        (S3, "task 7 panicked: TokioMultiThreadExecutor has crashed: RecvError", "is no URL"),
        (S3, OF_THE_JVM.format('No FileSystem for scheme "s3"'), "spark.jars.packages"),
        (DISK, f"LocalFileSystem{RED}Permission denied (os error 13)", "Let the user "),
        (DISK, OF_THE_JVM.format("java.io.FileNotFoundException: (Permission denied)"), "Let the"),
        (DISK, "Read-only file system (os error 30)", "mounted read-only"),
    ],
)
def test_what_somebody_must_give_is_refused_at_once(uri: str, raised: str, says: str):
    error = storage_error("write to", uri, OSError(raised))
    assert isinstance(error, StorageRefuses)
    assert says in str(error)
    assert_one_sentence(error, uri)


@pytest.mark.parametrize(
    ("uri", "raised", "says"),
    [
        (DISK, f"LocalFileSystem{RED}No space left on device (os error 28)", "the disk is full"),
        (DISK, OF_THE_JVM.format("java.io.IOException: Disk quota exceeded"), "the disk is full"),
        (S3, "403 Forbidden: <Code>QuotaExceeded</Code>", "the quota is used up"),
        (S3, "507 Insufficient Storage: <Code>XMinioStorageFull</Code>", "the disk is full"),
        (S3, f"Generic S3 error{RED}tcp connect error{RED}Connection refused", "AWS_ENDPOINT_URL"),
        (DISK, f"Kernel error{RED}something that nobody knows", "something that nobody knows ("),
    ],
)
def test_what_may_heal_is_waited_for(uri: str, raised: str, says: str):
    error = storage_error("write to", uri, OSError(raised))
    assert isinstance(error, StorageAway)
    assert says in str(error)
    assert_one_sentence(error, uri)


def made_unlike(folder: Path) -> Path:
    write_deltalake(str(folder), pa.table({"a": [1]}))
    return folder


def with_feature(folder: Path) -> Path:
    features = {"readerFeatures": ["tides"], "writerFeatures": ["tides"]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    commit = made_unlike(folder) / "_delta_log" / "00000000000000000001.json"
    commit.write_text(json.dumps(protocol) + "\n")
    return folder


def damaged(folder: Path) -> Path:
    (made_unlike(folder) / "_delta_log" / "00000000000000000000.json").write_text("garbage\n")
    return folder


@pytest.mark.parametrize("uri", ["s3://lake/shop/simds", "s3://accessdenied/shop/t"])
@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_words_in_a_tables_name_are_no_reason(uri: str, scheme: str):
    told = f"{scheme}{uri.removeprefix('s3')}/x.parquet: Generic S3 error: 503 Slow Down"
    assert isinstance(storage_error("write to", uri, OSError(told)), StorageAway)


@pytest.mark.parametrize(
    ("make", "says"),
    [(made_unlike, "No field named b"), (with_feature, "tides"), (damaged, "Json error")],
)
def test_a_table_of_another_kind_is_not_waited_for(
    make: Callable[[Path], Path], says: str, tmp_path: Path
):
    uri = str(make(tmp_path / "table"))
    with pytest.raises(StorageRefuses, match=says) as refused, one_sentence("read", uri):
        QueryBuilder().register("t", DeltaTable(uri)).execute("SELECT b FROM t").read_all()
    assert "waiting does not help" in str(refused.value)
    assert "<unknown>" not in str(refused.value), "no stack of Rust's"


def test_rows_that_do_not_fit_a_table_are_not_waited_for(tmp_path: Path):
    uri = str(made_unlike(tmp_path / "table"))
    with pytest.raises(StorageRefuses, match="Field b not found"), one_sentence("write to", uri):
        write_deltalake(uri, pa.table({"b": [1]}), mode="append")


def assert_one_sentence(error: TidelakeError, uri: str) -> None:
    text = str(error)
    assert text.startswith(f"cannot write to {uri}: ")
    assert not set("\n\x1b↳") & set(text)


def test_what_the_jvm_says_of_storage_is_told_from_its_other_troubles():
    assert is_storage_error(Py4JError(OF_THE_JVM.format("java.io.IOException: No space left")))
    assert not is_storage_error(Py4JError(OF_THE_JVM.format("java.lang.ArithmeticException")))


def test_a_refused_commit_is_no_other_writer_where_storage_says_why():
    error = refused(DISK, CommitFailedError("Permission denied (os error 13)"))
    assert isinstance(error, StorageRefuses)
    assert not isinstance(refused(DISK, CommitFailedError("version 3 exists")), StorageRefuses)
    assert isinstance(refused(DISK, CommitFailedError("version 3 exists")), TryAgain)
    assert issubclass(CommitFailedError, DeltaError)


class SmallDisk:
    """A file system of a few megabytes, which can be filled and made read-only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filling = folder / "filling"

    def fill(self) -> None:
        with self._filling.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"x" * 4096)

    def free(self) -> None:
        self._filling.unlink()

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """By a second mount over the first: to remount the first fails while the JVM has a file
        open that the full disk cut short."""
        run("mount", "--bind", str(self.folder), str(self.folder))
        try:
            run("mount", "-o", "remount,bind,ro", str(self.folder))
            yield
        finally:
            run("umount", "-l", str(self.folder))


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        run("mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder))
    except (subprocess.CalledProcessError, FileNotFoundError):
        pytest.skip("only root may mount a small disk")
    yield SmallDisk(folder)
    run("umount", "-l", str(folder))


@pytest.mark.spark
@pytest.mark.parametrize("engine", [SparkEngine({}), MergeOnWriteEngine({})], ids=lambda e: e.name)
def test_a_full_disk_and_a_read_only_one(
    spark: SparkSession, small_disk: SmallDisk, engine: Engine
):
    session = spark.newSession()
    for name, value in SESSION_CONF.items():
        session.conf.set(name, value)
    lab = EngineLab(spark=session, warehouse=small_disk.folder, engine=engine)
    table = lab.table(NAMED)
    assert lab.apply(table, 10, upsert(id=1, name="a")) == Applied(1)

    small_disk.fill()
    with pytest.raises(StorageAway, match=r"^cannot write to .*: the disk is full.*\. Free some"):
        lab.apply(table, 20, upsert(id=2, name="b"))
    with pytest.raises(StorageAway, match=r"^cannot create table shop.t1 at .*: the disk is full"):
        lab.table(NAMED)
    small_disk.free()
    lab.apply(table, 30, upsert(id=2, name="b"))
    lab.expect(table, {"id": 1, "name": "a"}, {"id": 2, "name": "b"})

    with (
        small_disk.read_only(),
        pytest.raises(StorageRefuses, match=r"^cannot write to .*: .* mounted read-only"),
    ):
        lab.apply(table, 40, upsert(id=3, name="c"))


def test_a_folder_of_somebody_else():
    """In a process of a user who may not read it."""
    if os.getuid() != 0:
        pytest.skip("only root may become somebody else")
    worker = multiprocessing.get_context("spawn").Process(target=as_nobody)
    worker.start()
    worker.join(60)
    assert worker.exitcode == 0


def as_nobody() -> None:
    with tempfile.TemporaryDirectory() as folder:  # that of a test is its user's alone
        Path(folder).chmod(0o755)
        write_deltalake(f"{folder}/t", pa.table({"id": [1]}))
        Path(folder, "t", "_delta_log").chmod(0)
        os.seteuid(NOBODY)
        try:
            with pytest.raises(StorageRefuses, match=r"permission denied\. Let the user nobody"):
                inspect(f"{folder}/t", {})
        finally:
            os.seteuid(0)
