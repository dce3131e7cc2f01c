"""A real Kafka broker (KRaft, one node) for tests and demo: loopback, own folder, free ports."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Assignment
from kafka import KafkaAdminClient, TopicPartition

from coordination.etcd.embedded import free_ports
from tests.services.broker_settings import LOGGING, SASL_LISTENER, Listener, Node
from tests.services.child_process import end_child, start_child
from tests.services.topic_producer import BrokerError, Outgoing, TopicProducer

REPOSITORY = Path(__file__).resolve().parents[2]
BROKER_JARS = (REPOSITORY / ".jars" / "broker").resolve()
ARCHIVE = BROKER_JARS / "classes.jsa"  # `broker_archive` makes it
QUICK_TO_START = ("-XX:TieredStopAtLevel=1",)  # for the little that tests send, C2 costs too much
START_PATIENCE_S = 60.0  # 3 seconds on a quiet machine
_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"


class ReadMessage(NamedTuple):
    """What a topic holds."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class KafkaBroker:
    """Start it, use ``bootstrap``, stop it; its data and ports survive ``kill`` and ``restart``.

    Start it on a thread that outlives it (see ``child_process``).
    """

    def __init__(
        self,
        *,
        heap: str = "512m",
        jvm: Sequence[str] = QUICK_TO_START,
        listeners: Sequence[Listener] = (SASL_LISTENER,),
        settings: Mapping[str, str] | None = None,
        scram: Sequence[str] = (),
        beside: KafkaBroker | None = None,
        port: int | None = None,
    ) -> None:
        """``jvm``: options. ``port``: of ``bootstrap``; without it, any free one. ``scram``: what
        ``StorageTool format --add-scram`` takes. ``beside``: a running broker whose cluster this
        one joins.
        """
        self._heap = heap
        self._jvm = jvm
        self._listeners = listeners
        self._settings = settings or {}
        self._scram = scram
        self.node_id = 1 if beside is None else beside.node_id + 1
        self._voter = "" if beside is None else beside._voter
        self._port = port
        self._ports: dict[str, int] = {}
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._producer: TopicProducer | None = None

    def __enter__(self) -> KafkaBroker:
        return self.start()

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        return self.bootstrap_of("plaintext")

    @property
    def port(self) -> int:
        return self._ports["plaintext"]

    @property
    def sasl_bootstrap(self) -> str:
        """The same broker, for who logs in (PLAIN, ``SASL_USER``, ``SASL_PASSWORD``)."""
        return self.bootstrap_of(SASL_LISTENER.name)

    def bootstrap_of(self, listener: str) -> str:
        return f"127.0.0.1:{self._ports[listener]}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> KafkaBroker:
        """Blocks until topics can be made (about 3 seconds)."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="tidelake-kafka-"))
            try:
                self._format()
            except BaseException:
                self._remove_folder()
                raise
        try:
            self._launch()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Ends the process and removes its folder; stopping twice is fine."""
        self._producer = None
        self.end()
        self._remove_folder()

    def end(self, patience_s: float = 10.0) -> None:
        """SIGTERM, and SIGKILL after ``patience_s``; the data stay for ``restart``."""
        if self._process is not None:
            end_child(self._process, patience_s=patience_s)
            self._process = None

    def kill(self) -> None:
        """SIGKILL; the data stay for ``restart``."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Stop (if it runs) and start again: same ports, same data."""
        self.end()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def create_topic(
        self, name: str, partitions: int = 3, replicas: int = 1, **configs: str
    ) -> None:
        """Blocks until every partition has a leader."""
        with self._admin() as admin:
            topic = {
                "num_partitions": partitions,
                "replication_factor": replicas,
                "configs": configs,
            }
            admin.create_topics({name: topic}, wait_for_metadata=True)

    def delete_topic(self, name: str) -> None:
        """Blocks until the name is gone from the broker's metadata."""
        with self._admin() as admin:
            admin.delete_topics([name])
            deadline = time.monotonic() + 30
            while name in admin.list_topics():
                if time.monotonic() > deadline:
                    raise BrokerError(f"topic {name} is still listed 30 s after its deletion")
                time.sleep(0.02)

    def add_partitions(self, topic: str, count: int) -> None:
        """So that there are so many. Blocks until clients are told of them."""
        with self._admin() as admin:
            admin.create_partitions({topic: count})
        self._producer = None  # it knows those that were there before
        deadline = time.monotonic() + 30
        while len(self.end_offsets(topic)) < count:
            if time.monotonic() > deadline:
                raise BrokerError(f"topic {topic} has not {count} partitions after 30 s")
            time.sleep(0.02)

    def delete_records(self, topic: str, before: dict[int, int]) -> None:
        """Drop what lies before these offsets (partition -> first offset that stays)."""
        with self._admin() as admin:
            admin.delete_records({TopicPartition(topic, p): o for p, o in before.items()})

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Partition -> the offset that the next message will get."""
        return {partition: high for partition, (_, high) in self._offsets(topic).items()}

    def start_offsets(self, topic: str) -> dict[int, int]:
        """Partition -> the oldest offset that is still there."""
        return {partition: low for partition, (low, _) in self._offsets(topic).items()}

    def produce(self, topic: str, messages: Iterable[Outgoing]) -> None:
        """Send in this order per partition; returns when all are acknowledged."""
        if self._producer is None:
            self._producer = TopicProducer(self.bootstrap)
        self._producer.send(topic, messages)
        self._producer.flush()

    def producer(self, **settings: str | int) -> Producer:
        """For times, headers and transactions."""
        return Producer({"bootstrap.servers": self.bootstrap, "log_level": 0, **settings})

    def read(self, topic: str) -> list[ReadMessage]:
        """All messages of a topic, partition by partition."""
        with self._consumer() as consumer:
            return list(_read_all(consumer, topic, self._offsets(topic)))

    def _offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        deadline = time.monotonic() + 60
        with self._consumer() as consumer:
            while True:
                partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
                try:
                    return {
                        p: consumer.get_watermark_offsets(Assignment(topic, p), timeout=30)
                        for p in sorted(partitions)
                    }
                except KafkaException as error:  # a topic just made: it leads, and knows it soon
                    code = error.args[0].code()
                    if code != KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > deadline:
                        raise
                    time.sleep(0.1)

    @contextmanager
    def _admin(self) -> Iterator[KafkaAdminClient]:
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            yield admin
        finally:
            admin.close()

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "none", "log_level": 0}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        try:
            yield consumer
        finally:
            consumer.close()

    def _format(self) -> None:
        assert self._folder is not None
        names = ["plaintext", *(each.name for each in self._listeners)]
        controller_port, *ports = free_ports(1 + len(names))
        self._ports = dict(zip(names, ports, strict=True))
        if self._port is not None:
            self._ports["plaintext"] = self._port
        self._voter = self._voter or f"{self.node_id}@127.0.0.1:{controller_port}"
        node = Node(self.node_id, self._voter, self._ports, self._listeners, self._folder)
        properties = self._folder / "server.properties"
        properties.write_text(node.properties(self._settings))
        (self._folder / "log4j2.properties").write_text(LOGGING)
        arguments = ["format", "-t", _CLUSTER_ID, "-c", str(properties)]
        arguments += [word for each in self._scram for word in ("--add-scram", each)]
        done = subprocess.run(
            self._java("kafka.tools.StorageTool", *arguments), capture_output=True, check=False
        )
        if done.returncode:
            raise BrokerError(f"format failed: {(done.stdout + done.stderr).decode()[-2000:]}")

    def _launch(self) -> None:
        assert self._folder is not None
        with (self._folder / "broker.log").open("ab") as log:
            command = self._java("kafka.Kafka", str(self._folder / "server.properties"))
            self._process = start_child(command, output=log)
        deadline = time.monotonic() + START_PATIENCE_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise BrokerError(f"the broker did not start:\n{self.log_tail()}")

    def _answers(self) -> bool:
        """Whether a client gets a list of brokers with this one in it (it is unfenced then)."""
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
            return False
        try:
            with self._consumer() as consumer:
                return bool(consumer.list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def _java(self, main: str, *arguments: str) -> list[str]:
        assert self._folder is not None
        archive = (f"-XX:SharedArchiveFile={ARCHIVE}",) if ARCHIVE.exists() else ()
        return [
            java_program(),
            f"-Xmx{self._heap}",
            "-XX:+UseSerialGC",
            *("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off", *archive),
            *self._jvm,
            f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}",
            f"-Djava.io.tmpdir={self._folder}",
            "-cp",
            _class_path(),
            main,
            *arguments,
        ]

    def log_tail(self) -> str:
        assert self._folder is not None
        return (self._folder / "broker.log").read_text(errors="replace")[-2000:]

    def _remove_folder(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def _read_all(
    consumer: Consumer, topic: str, offsets: dict[int, tuple[int, int]]
) -> Iterator[ReadMessage]:
    for partition, (low, high) in offsets.items():
        consumer.assign([Assignment(topic, partition, low)])
        position = low
        while position < high:
            # Where offsets are missing, fewer messages come than are asked for.
            for message in consumer.consume(min(high - position, 10_000), timeout=0.5):
                if message.error():
                    raise BrokerError(str(message.error()))
                yield ReadMessage(partition, message.offset(), message.key(), message.value())
                position = message.offset() + 1


def java_program() -> str:
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if program is None:
        raise BrokerError("no java: Java 17 must be on the PATH, or JAVA_HOME be set")
    return program


def _class_path() -> str:
    """The broker's jars and, as Kafka's POM names no logging back end, PySpark's log4j."""
    if not any(BROKER_JARS.glob("kafka_*.jar")):
        raise BrokerError(f"no jars in {BROKER_JARS.relative_to(REPOSITORY)}: run make setup")
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.submodule_search_locations is not None
    folder = Path(pyspark.submodule_search_locations[0]) / "jars"
    logging = [*folder.glob("slf4j-api-*.jar"), *folder.glob("log4j-slf4j2-impl-*.jar")]
    return os.pathsep.join([*map(str, logging), f"{BROKER_JARS}/*"])
