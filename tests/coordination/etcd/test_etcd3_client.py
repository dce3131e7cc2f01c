"""What only the real client does: connect, log in, TLS, time-outs, watches that outlive etcd."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from conf.settings import EtcdSettings
from coordination.errors import ConfigError, Stop, TidelakeError, TryAgain
from coordination.etcd import etcd3_client
from coordination.etcd.client import EtcdClient, get
from coordination.etcd.embedded import EmbeddedEtcd, find_binary, free_ports
from coordination.etcd.etcd3_client import Etcd3Client, connect
from coordination.model import Revision
from tests.contracts.etcd_client_contract import Seen
from tests.own_lines import own_text

pytestmark = pytest.mark.etcd

TLS = Path(__file__).parent / "tls"
CERT, KEY = str(TLS / "cert.pem"), str(TLS / "key.pem")


def target(etcd: EmbeddedEtcd) -> str:
    return etcd.endpoint.removeprefix("http://")


def settings(*endpoints: str, **more: str) -> EtcdSettings:
    return EtcdSettings(endpoints=endpoints, embedded=False, **more)  # type: ignore[arg-type]


@contextmanager
def frozen(etcd: EmbeddedEtcd) -> Iterator[None]:
    os.kill(etcd.pid, signal.SIGSTOP)
    threads = list(Path(f"/proc/{etcd.pid}/task").glob("*/stat"))
    while any(thread.read_text().rpartition(")")[2].split()[0] != "T" for thread in threads):
        time.sleep(0.001)  # the signal is sent, but one of them may still answer
    try:
        yield
    finally:
        os.kill(etcd.pid, signal.SIGCONT)


class TestConnecting:
    def test_an_unreachable_etcd_is_one_line_in_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(etcd3_client, "CONNECT_TIMEOUT_S", 2.5)  # time for two tries
        (port,) = free_ports(1)
        began = time.monotonic()
        with pytest.raises(TidelakeError, match=f"etcd at http://127.0.0.1:{port} does not answer"):
            connect(settings(f"http://127.0.0.1:{port}"))
        assert time.monotonic() - began < 20

    @pytest.mark.parametrize(
        ("wrong", "says"),
        [
            (settings(), "no endpoint given"),
            (settings("ftp://127.0.0.1:2379"), "expected http://host:2379"),
            (settings("http://127.0.0.1:port"), "expected http://host:2379"),
            (settings("http://127.0.0.1/v3"), "expected http://host:2379"),
            (settings("http://a:1", "https://b:1"), "all http or all https"),
            (settings("http://a:1", user="root"), "user and password"),
            (settings("https://a:1", cert="c.pem"), "cert and key"),
            (settings("https://a:1", ca="/no/such/file"), "cannot read ca '/no/such/file'"),
        ],
    )
    def test_wrong_settings_are_one_line(self, wrong: EtcdSettings, says: str) -> None:
        with pytest.raises(ConfigError, match=says):
            connect(wrong)

    def test_the_next_endpoint_is_taken_when_one_is_down(self, etcd: EmbeddedEtcd) -> None:
        (port,) = free_ports(1)
        client = connect(settings(f"http://127.0.0.1:{port}", etcd.endpoint))
        assert client.cluster_id()
        client.close()


class TestTrouble:
    def test_a_frozen_server_ends_in_try_again_in_time(self, own_etcd: EmbeddedEtcd) -> None:
        client = Etcd3Client([target(own_etcd)], timeout_s=0.5)
        lease = client.grant(60)
        with frozen(own_etcd):
            for call in (
                lambda: client.range("/a"),
                lambda: client.put("/a", b"1"),
                lambda: client.keep_alive(lease.id, timeout_s=0.5),
            ):
                began = time.monotonic()
                with pytest.raises(TryAgain, match="deadline"):
                    call()
                assert time.monotonic() - began < 20
        assert client.keep_alive(lease.id, timeout_s=30) == 60
        client.close()

    def test_calls_that_fail_together_do_not_come_back_to_a_frozen_server(
        self, etcd: EmbeddedEtcd, own_etcd: EmbeddedEtcd
    ) -> None:
        client = Etcd3Client([target(own_etcd), target(etcd)], timeout_s=0.5)
        with frozen(own_etcd), ThreadPoolExecutor(2) as pool:
            calls = [pool.submit(client.range, "/a") for _ in range(2)]
            for call in calls:
                with pytest.raises(TryAgain, match=target(own_etcd)):
                    call.result()
            assert client.range("/a").revision
        client.close()

    def test_a_restarted_server_is_found_again(self, own_etcd: EmbeddedEtcd) -> None:
        client = Etcd3Client([target(own_etcd)])
        client.put("/a", b"1")
        own_etcd.kill()
        with pytest.raises(TryAgain):
            client.range("/a")
        own_etcd.start()
        await_answer(client)
        assert get(client, "/a") is not None
        client.close()

    def test_a_watch_goes_on_after_a_restart_and_misses_nothing(
        self, own_etcd: EmbeddedEtcd
    ) -> None:
        watcher, writer = Etcd3Client([target(own_etcd)]), Etcd3Client([target(own_etcd)])
        seen = Seen()
        watcher.watch("/w/", seen, prefix=True, start_revision=Revision(1))
        writer.put("/w/a", b"1")
        assert seen.event().kv.value == b"1"
        own_etcd.kill()
        own_etcd.start()
        await_answer(writer)
        writer.put("/w/a", b"2")
        assert seen.batch().missed, "it may have been restored from a backup: read again"
        assert seen.event().kv.value == b"2"
        watcher.close()
        writer.close()

    def test_a_silent_watch_is_made_again(
        self, own_etcd: EmbeddedEtcd, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO")
        client = Etcd3Client([target(own_etcd)], silence_s=1.5)
        seen = Seen()
        client.watch("/w/", seen, prefix=True)
        time.sleep(3.5)
        assert "silent" not in own_text(caplog)  # an idle watch asks, and is answered
        deadline = time.monotonic() + 60
        with frozen(own_etcd):
            while "watch is silent, made again" not in own_text(caplog):
                assert time.monotonic() < deadline
                time.sleep(0.05)
        await_answer(client)
        client.put("/w/a", b"1")
        assert seen.event().kv.value == b"1"
        client.close()

    def test_a_closed_client_says_so_and_closes_twice(self, etcd: EmbeddedEtcd) -> None:
        client = connect(settings(etcd.endpoint))
        client.close()
        client.close()
        with pytest.raises(TryAgain, match="closed"):
            client.range("/a")

    def test_a_callback_that_fails_does_not_end_the_watch(
        self, real_client: EtcdClient, caplog: pytest.LogCaptureFixture
    ) -> None:
        seen = Seen()

        def callback(batch: object) -> None:
            seen(batch)  # type: ignore[arg-type]
            raise RuntimeError("a bug")

        start = Revision(real_client.range("/f").revision + 1)
        watch = real_client.watch("/f", callback, start_revision=start)
        for value in (b"1", b"2"):
            real_client.put("/f", value)
            assert seen.event().kv.value == value
        watch.cancel()
        assert "a bug" in own_text(caplog)


@pytest.fixture(scope="class")
def locked() -> Iterator[EmbeddedEtcd]:
    etcd = EmbeddedEtcd()
    etcd.start()
    for command in (
        "user add root:secret",
        "role add reader",
        "role grant-permission reader read --prefix=true /r/",
        "user add guest:guest",
        "user grant-role guest reader",
        "user grant-role root root",
        "auth enable",
    ):
        etcdctl(etcd, command)
    yield etcd
    etcd.stop()


class SigningEtcd(EmbeddedEtcd):
    """Its tokens are signed (JWT), and say as of which users and roles."""

    def _arguments(self, folder: Path) -> tuple[str, ...]:
        keys = f"pub-key={CERT},priv-key={KEY}"
        return (*super()._arguments(folder), f"--auth-token=jwt,{keys},sign-method=ES256")


@pytest.fixture
def signed() -> Iterator[EmbeddedEtcd]:
    with SigningEtcd() as etcd:
        for command in ("user add root:secret", "user grant-role root root", "auth enable"):
            etcdctl(etcd, command)
        yield etcd


class TestLogin:
    def test_user_and_password(self, locked: EmbeddedEtcd) -> None:
        client = connect(settings(locked.endpoint, user="root", password="secret"))
        lease = client.grant(60)
        client.put("/a", b"1", lease.id)
        assert client.keep_alive(lease.id, timeout_s=30) == 60
        seen = Seen()
        watch = client.watch("/a", seen)
        time.sleep(0.3)
        client.revoke(lease.id)
        assert seen.event().kind == "delete"
        watch.cancel()
        client.close()

    def test_a_token_that_etcd_forgot_is_renewed(self, locked: EmbeddedEtcd) -> None:
        client = connect(settings(locked.endpoint, user="root", password="secret"))
        client.put("/a", b"1")
        locked.kill()
        locked.start()  # simple tokens live in memory
        await_answer(client)
        assert get(client, "/a") is not None
        client.close()

    def test_a_token_that_is_older_than_the_users_is_renewed(self, signed: EmbeddedEtcd) -> None:
        client = connect(settings(signed.endpoint, user="root", password="secret"))
        client.put("/a", b"1")
        etcdctl(signed, "--user=root:secret user add guest:guest")
        assert get(client, "/a") is not None
        client.close()

    @pytest.mark.parametrize(
        "told", ["auth: revision in header is old", "etcdserver: revision of auth store is old"]
    )
    def test_each_etcd_says_in_its_words_that_a_token_is_old(self, told: str) -> None:
        error = grpc.aio.AioRpcError(
            grpc.StatusCode.INVALID_ARGUMENT, grpc.aio.Metadata(), grpc.aio.Metadata(), told
        )
        assert etcd3_client._token_is_stale(error)

    def test_a_wrong_password_is_a_wrong_configuration(self, locked: EmbeddedEtcd) -> None:
        with pytest.raises(ConfigError, match=r"refused us.*invalid user ID or password"):
            connect(settings(locked.endpoint, user="root", password="wrong"))

    def test_a_missing_permission_is_told_and_not_tried_again(self, locked: EmbeddedEtcd) -> None:
        client = connect(settings(locked.endpoint, user="guest", password="guest"))
        assert get(client, "/r/a") is None
        with pytest.raises(TidelakeError, match="permission denied") as refused:
            client.put("/r/a", b"1")
        assert not isinstance(refused.value, TryAgain)
        client.close()


class TestTls:
    @pytest.fixture
    def endpoint(self, tmp_path: Path) -> Iterator[str]:
        client_port, peer_port = free_ports(2)
        endpoint = f"https://127.0.0.1:{client_port}"
        etcd = subprocess.Popen(
            [
                str(find_binary()),
                f"--data-dir={tmp_path / 'data'}",
                f"--listen-client-urls={endpoint}",
                f"--advertise-client-urls={endpoint}",
                f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
                f"--cert-file={CERT}",
                f"--key-file={KEY}",
                f"--trusted-ca-file={CERT}",
                "--client-cert-auth",
                "--unsafe-no-fsync",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        yield endpoint
        etcd.kill()
        etcd.wait()

    def test_both_sides_show_their_certificates(
        self, endpoint: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = connect(settings(endpoint, ca=CERT, cert=CERT, key=KEY))
        client.put("/a", b"1")
        assert get(client, "/a") is not None
        client.close()
        monkeypatch.setattr(etcd3_client, "CONNECT_TIMEOUT_S", 1.0)
        with pytest.raises(TidelakeError, match="does not answer"):
            connect(settings(endpoint, ca=CERT))  # no certificate of ours


FORKING = """
import signal, subprocess, sys
from conf.settings import EtcdSettings
from coordination.etcd.etcd3_client import connect
client = connect(EtcdSettings(endpoints=(sys.argv[1],), embedded=False))
client.watch("/a", print)
for _ in range(10):  # as PySpark starts its JVM
    subprocess.run(["true"], preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
client.range("/a")
client.close()
"""


def test_starting_processes_beside_it_is_quiet(etcd: EmbeddedEtcd) -> None:
    child = subprocess.run(
        [sys.executable, "-c", FORKING, etcd.endpoint], capture_output=True, text=True, check=False
    )
    assert (child.returncode, child.stdout, child.stderr) == (0, "", "")


def etcdctl(etcd: EmbeddedEtcd, command: str) -> None:
    program = find_binary().with_name("etcdctl")
    subprocess.run(
        [str(program), f"--endpoints={etcd.endpoint}", *command.split()],
        check=True,
        capture_output=True,
        env={"ETCDCTL_API": "3"},
    )


def await_answer(client: EtcdClient) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            client.range("/any")
        except TryAgain:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            return


def test_who_is_asked_to_stop_while_it_connects_is_not_refused(monkeypatch: pytest.MonkeyPatch):
    """A signal's handler raises Stop wherever the main thread is, be it amid the first call."""

    def interrupted(_client: Etcd3Client) -> str:
        raise Stop("asked to stop before the start")

    monkeypatch.setattr(Etcd3Client, "cluster_id", interrupted)
    with pytest.raises(Stop, match="asked to stop"):
        connect(EtcdSettings(endpoints=("http://127.0.0.1:1",)))


def test_a_full_etcd_is_told_with_its_way_out():
    class Small(EmbeddedEtcd):
        def _arguments(self, folder: Path) -> tuple[str, ...]:
            return (*super()._arguments(folder), "--quota-backend-bytes=2000000")

    with Small() as etcd:
        client = connect(settings(etcd.endpoint))
        lease = client.grant(30)

        def fill() -> None:
            for number in range(100):
                client.put(f"k{number}", os.urandom(1 << 17))

        with pytest.raises(TryAgain, match=r"Its database is full: etcdctl compact.*alarm disarm"):
            fill()
        assert client.keep_alive(lease.id, timeout_s=10.0) > 0, "so a session would not end"
        client.close()
