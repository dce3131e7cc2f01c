"""Spark's JVM as a child: here a script stands for it."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from subprocess import Popen
from typing import Any

import psutil
import pytest

from coordination.errors import Stop, TidelakeError
from streaming.spark.java import java_version
from streaming.spark.jvm import DriverJvm, retell
from streaming.spark.spark_conf import LOOPBACK
from tests.own_lines import own_records

PATIENCE_S = 60.0


def spark_home(folder: Path, script: str) -> str:
    submit = folder / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(f"#!/bin/sh\n{script}\n")
    submit.chmod(0o755)
    return str(folder)


def await_pid(said: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not said.exists() or not said.read_text().strip():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_one_that_is_starting_is_ended_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    said = tmp_path / "pid"
    monkeypatch.setenv("SPARK_HOME", spark_home(tmp_path, f"echo $$ >{said}; exec sleep 60"))
    jvm, ended = DriverJvm(), []

    def start() -> None:
        try:
            jvm.launch({})
            jvm.start()
        except Stop as stop:
            ended.append(stop)

    thread = threading.Thread(target=start)
    thread.start()
    await_pid(said)
    jvm.stop()
    thread.join(PATIENCE_S)
    assert len(ended) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(int(said.read_text()), 0)
    with pytest.raises(Stop):  # none after the stop
        jvm.launch({})
    jvm.stop()


def test_a_signal_amid_its_launch_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What handles it raises Stop wherever the main thread is, so before it knows of the process,
    which would never end: the folder is gone in which it is to say how it is reached."""
    monkeypatch.setenv("SPARK_HOME", spark_home(tmp_path, "exec sleep 60"))
    started: list[subprocess.Popen[bytes]] = []

    def popen(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(Popen(*args, **options))
        signal.raise_signal(signal.SIGUSR1)
        return started[0]

    def stop(*_: object) -> None:
        raise Stop("asked to stop")

    monkeypatch.setattr(subprocess, "Popen", popen)
    before = signal.signal(signal.SIGUSR1, stop)
    jvm = DriverJvm()
    try:
        with pytest.raises(Stop):
            jvm.launch({})
    finally:
        signal.signal(signal.SIGUSR1, before)
    jvm.stop()
    assert started[0].poll() is not None


def test_one_whose_driver_is_killed_amid_its_launch_ends_with_it(tmp_path: Path):
    """It does not read its input yet, and its driver has no time to end it."""
    said = tmp_path / "pid"
    driver = subprocess.Popen(
        [
            *(sys.executable, "-c"),
            "import time, streaming.spark.jvm as jvm; jvm.DriverJvm().launch({}); time.sleep(60)",
        ],
        env={
            **os.environ,
            "SPARK_HOME": spark_home(tmp_path, f"echo $$ >{said}; exec sleep 60"),
        },
    )
    await_pid(said)
    driver.kill()
    driver.wait()
    deadline = time.monotonic() + PATIENCE_S
    while psutil.pid_exists(int(said.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_one_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    script = "echo 'WARNING: Using incubator modules: x' >&2; echo JAVA_HOME is not set >&2; exit 1"
    monkeypatch.setenv("SPARK_HOME", spark_home(tmp_path, script))
    says = r"Spark does not start: JAVA_HOME is not set$"
    jvm = DriverJvm()
    for _ in range(2):  # another one may start
        jvm.launch({})
        with pytest.raises(TidelakeError, match=says):
            jvm.start()
        assert not jvm.is_launched
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    jvm.launch({})
    with pytest.raises(TidelakeError, match=r"JAVA_HOME is .*, which has no bin/java\. Mend JAVA"):
        jvm.start()


@pytest.mark.parametrize(
    ("says", "found"),
    [
        ('openjdk version "17.0.9" 2023-10-17', ""),
        ('openjdk version "21" 2023-09-19', ""),
        ('java version "1.8.0_392"', "is Java 1.8.0_392"),
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11.0.2"),
        ("error: no such thing", "does not tell its version: error: no such thing. It needs Java"),
        (
            "Error occurred during initialization of VM\nCould not allocate class space: 1 bytes",
            "its version: Could not allocate class space: 1 bytes. It gets too little memory",
        ),
        (
            "Unrecognized VM option Nope\nError: Could not create the Java Virtual Machine.",
            "its version: Unrecognized VM option Nope. Mend SPARK_DRIVER_MEMORY",
        ),
    ],
)
def test_a_java_is_asked_for_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, found: str
):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\nprintf '{says}\\n' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if not found:
        assert str(java) in java_version()
        return
    with pytest.raises(TidelakeError, match=found):
        java_version()


TRACE = """\
Exception in thread "main" java.lang.ExceptionInInitializerError
\tat org.apache.spark.SparkConf.<init>(SparkConf.scala:63)
Caused by: {}
\tat java.base/java.net.InetAddress.getLocalHost(InetAddress.java:1666)
\t... 17 more"""


@pytest.mark.parametrize(
    ("does", "says"),
    [
        (
            "printf 'Error occurred during initialization of VM\nCould not reserve enough space'",
            "start: Could not reserve enough space. It gets too little memory: .*ulimit -v",
        ),
        ("kill -9 $$", r"start: it was killed \(exit code -9\)\. It gets too little memory"),
        (
            f"echo '{TRACE.format('java.net.UnknownHostException: box: not known')}' >&2",
            r"start: java\.net\.UnknownHostException: box: not known\. .* set SPARK_LOCAL_IP",
        ),
        (
            "printf 'Exception in thread \"main\" java.lang.Error: [unresolved dependency: x]\n'",
            r"start: java\.lang\.Error: \[unresolved dependency: x\]\. .*`tidelake jars DIR`",
        ),
        (
            "printf 'Invalid maximum heap size: -Xmxabc\nError: Could not create the Java Virtual'",
            "start: Invalid maximum heap size: -Xmxabc. Mend SPARK_DRIVER_MEMORY",
        ),
        ("exit 3", "start: exit code 3$"),
    ],
)
def test_what_it_died_of_is_told_and_not_that_it_needs_another_java(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    does: str,
    says: str,
):
    """It says so on its standard output where it has not begun, which is a command's answer."""
    monkeypatch.setenv("SPARK_HOME", spark_home(tmp_path, does))
    jvm = DriverJvm()
    jvm.launch({})
    with pytest.raises(TidelakeError, match=says):
        jvm.start()
    assert capfd.readouterr().out == ""


def test_one_within_this_machine_does_not_look_up_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SPARK_HOME", spark_home(tmp_path, "echo address=$SPARK_LOCAL_IP"))
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    for conf, address in ((LOOPBACK, "127.0.0.1"), ({}, "")):
        jvm = DriverJvm()
        jvm.launch(conf)
        with pytest.raises(TidelakeError, match=f"address={address}$"):
            jvm.start()


def test_none_has_a_collector_beside_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """JDK_JAVA_OPTIONS is for the launcher too, and two collectors are one too many."""
    java = "exec java -XX:+UseG1GC $SPARK_LAUNCHER_OPTS -version >&2"
    monkeypatch.setenv("SPARK_HOME", spark_home(tmp_path, java))
    jvm = DriverJvm()
    jvm.launch({})
    with pytest.raises(TidelakeError, match="Server VM"):  # what `-version` says last
        jvm.start()


AT = "2026-11-22T18:00:00.000Z"
OUT_OF_MEMORY = "java.lang.OutOfMemoryError: Java heap space"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (f"{AT} ERROR spark.Shuffle: full", ("spark.Shuffle", logging.ERROR, "full")),
        (f"{AT} WARN spark.Utils: a hint", ("spark.Utils", logging.WARNING, "a hint")),
        (
            OUT_OF_MEMORY,
            ("streaming.spark.jvm", logging.WARNING, f"Spark's JVM says: {OUT_OF_MEMORY}"),
        ),
    ],
)
def test_what_it_says_are_log_lines(
    caplog: pytest.LogCaptureFixture, line: str, told: tuple[str, int, str]
):
    retell(line)
    said = [(each.name, each.levelno, each.getMessage()) for each in own_records(caplog)]
    assert said == [told]


def test_what_it_says_while_it_is_ended_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """A start that is broken off fails, and says so."""
    ends = f"cat >/dev/null; echo '{AT} ERROR spark.SparkContext: it is stopped' >&2"
    monkeypatch.setenv("SPARK_HOME", spark_home(tmp_path, ends))
    monkeypatch.setattr("streaming.spark.jvm._shut_down", lambda _within_s: True)
    caplog.set_level(logging.DEBUG)
    jvm = DriverJvm()
    jvm.launch({})
    jvm._is_up = True
    jvm.stop()
    assert jvm._listener is not None
    jvm._listener.join(PATIENCE_S)
    (record,) = own_records(caplog)
    assert record.levelno == logging.DEBUG
    assert "it is stopped" in record.getMessage()
