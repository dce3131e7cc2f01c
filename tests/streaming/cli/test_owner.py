"""What commands say of a change, from what to what; and of an owner that is changing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from conf.settings import TransportSettings
from coordination.errors import TryAgain
from coordination.etcd import keys
from coordination.etcd.client import Delete, EtcdClient
from coordination.etcd.embedded import EmbeddedEtcd
from coordination.metadata.lookup import read_changefeeds
from coordination.metadata.records import ScheduleRow, dump
from coordination.model import CaptureID, CaptureInfo
from coordination.transport.grpc_calls import CallRefused
from coordination.transport.grpc_transport import GrpcTransport
from streaming.operations import owner_calls
from tests.streaming.cli.test_cluster import SOURCE, Cluster, client_of, create

Command = Callable[..., tuple[int, str, str]]


def changed(rows: list[dict[str, Any]]) -> dict[str, tuple[Any, Any]]:
    return {name: (each["from"], each["to"]) for name, each in rows[0]["changed"].items()}


def test_each_change_of_a_changefeed_is_told(
    cluster: Cluster,
    command: Command,
    tmp_path: Path,
) -> None:
    made = create(cluster, tmp_path, "shop", "--start-ts", "5")
    assert made["changed"] == {"state": {"from": None, "to": "normal"}}
    assert changed(cluster("changefeed", "pause", "-c", "shop")) == {"state": ("normal", "stopped")}
    resumed = cluster("changefeed", "resume", "-c", "shop", "--overwrite-checkpoint-ts", "7")
    assert changed(resumed) == {"state": ("stopped", "normal"), "checkpoint_ts": (5, 7)}
    code, out, err = command("changefeed", "pause", "-c", "shop")
    assert (code, err, out.splitlines()[0]) == (0, "", "shop: normal → stopped")
    code, out, _ = command("changefeed", "update", "-c", "shop", "--target-ts", "1000")
    assert out.splitlines()[0] == "shop: target-ts: - → 1000"
    code, out, _ = command("changefeed", "remove", "-c", "shop")
    assert out.splitlines()[0] == "shop: stopped → removed"
    assert "changed" not in out.split("\n", 1)[1]


def test_an_update_tells_each_setting_and_no_secret(cluster: Cluster, tmp_path: Path) -> None:
    secret, newer = "swordfish-1", "swordfish-2"
    file = tmp_path / "c.toml"

    def write(password: str, rules: str, zone: str) -> None:
        file.write_text(
            f'zero-date = "{zone}"\n[filter]\nrules = ["{rules}"]\n'
            f'[storage-options]\nAWS_SECRET_ACCESS_KEY = "{password}"\nAWS_REGION = "eu"\n'
        )

    def uri(password: str) -> str:
        return f"{SOURCE}&sasl-user=a&sasl-password={password}&sasl-mechanism=plain"

    write(secret, "a.*", "null")
    sink = f"delta://{tmp_path}/warehouse"
    cluster(
        "changefeed", "create", "-c", "shop", "--config", str(file), "--sink-uri", sink,
        "--source-uri", uri(secret),
    )  # fmt: skip
    cluster("changefeed", "pause", "-c", "shop")
    write(newer, "b.*", "fail")
    schema = tmp_path / "shop.sql"
    schema.write_text("CREATE TABLE b.t (id INT PRIMARY KEY);")
    rows = cluster(
        "changefeed", "update", "-c", "shop", "--config", str(file), "--source-uri", uri(newer),
        "--schema-file", str(schema), "--sink-uri", f"{sink}2",
    )  # fmt: skip
    told = changed(rows)
    assert told["zero-date"] == ("null", "fail")
    assert told["filter.rules"] == (["a.*"], ["b.*"])
    assert told["sink-uri"] == (sink, f"{sink}2")
    assert told["storage-options.AWS_SECRET_ACCESS_KEY"] == ("***", "***")
    assert told["schema-file"][0] is None
    assert told["schema-file"][1].endswith(" characters")
    assert told["source-uri"][0] == told["source-uri"][1] == uri("***")
    assert len(told) == 6
    assert secret not in json.dumps(rows)
    assert newer not in json.dumps(rows)


# The owner, and its changes.


@dataclass
class Owner:
    """A capture that answers as it is told; by method, its answers: the last one stays."""

    id: CaptureID
    answers: dict[str, list[Any]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    address: str = ""

    def handle(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((method, params))
        answers = self.answers[method]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)


@contextmanager
def serving(etcd: EmbeddedEtcd, name: str, **answers: Any) -> Iterator[Owner]:
    """A capture that leads."""
    owner = Owner(CaptureID(name), {key.replace("_", "-"): each for key, each in answers.items()})
    transport = GrpcTransport(
        TransportSettings(addr="127.0.0.1:0"),
        resolve=lambda _capture_id: None,
        wake=lambda: None,
        handle=owner.handle,
    )
    owner.address = transport.start()
    with client_of(etcd) as client:
        try:
            register(client, owner.id, owner.address, leads=True)
            yield owner
        finally:
            transport.close()
            forget(client, owner.id)


def register(client: EtcdClient, capture: CaptureID, address: str, *, leads: bool) -> None:
    cluster_id = os.environ["TIDELAKE_CLUSTER_ID"]
    info = CaptureInfo(id=capture, address=address, version="1", start_timestamp=0)
    client.put(keys.capture_key(cluster_id, capture), keys.dump_capture_info(info))
    if leads:
        client.put(f"{keys.election_prefix(cluster_id)}{capture}", capture.encode())


def forget(client: EtcdClient, capture: CaptureID) -> None:
    cluster_id = os.environ["TIDELAKE_CLUSTER_ID"]
    leads = f"{keys.election_prefix(cluster_id)}{capture}"
    client.txn((), (Delete(keys.capture_key(cluster_id, capture)), Delete(leads)))


ASKS_THE_OWNER = (
    ("processor", "list"),
    ("processor", "list", "-c", "shop"),
    ("table", "move", "-c", "shop", "--table", "shop.a", "--capture-id", "c2"),
    ("table", "rebalance", "-c", "shop"),
    ("capture", "drain", "--capture-id", "c1"),
)


@pytest.mark.parametrize("asked", ASKS_THE_OWNER)
def test_who_is_asked_while_the_owner_changes_answers_no_nothing(
    command: Command,
    etcd: EmbeddedEtcd,
    monkeypatch: pytest.MonkeyPatch,
    asked: tuple[str, ...],
) -> None:
    """One that is still taking over, that was killed, and none at all: each is named."""
    monkeypatch.setattr(owner_calls, "AGAIN_S", 0.01)
    monkeypatch.setattr(owner_calls.OwnerCalls.ask, "__kwdefaults__", {"wait_s": 0.2})
    methods = ("list_processors", "move_table", "rebalance", "drain_capture")
    not_yet = {each: [TryAgain("capture c1 leads, and is still taking over")] for each in methods}
    with serving(etcd, "c1", **not_yet):
        code, out, err = command(*asked)
        waits, failed = err.splitlines()
        assert (code, out) == (1, "")
        assert waits.startswith("tidelake: waits for up to 0.2 s: capture c1 leads, and is still")
        assert "is still taking over. That was so for 0.2 s" in failed
    with client_of(etcd) as client:
        register(client, CaptureID("c1"), "127.0.0.1:9", leads=True)
        code, out, err = command(*asked)
        assert (code, out) == (1, "")
        assert "no answer from the capture at 127.0.0.1:9" in err
        assert "Capture c1 leads, as etcd says: where it was killed, its lease ends soon" in err
        forget(client, CaptureID("c1"))
        register(client, CaptureID("c1"), "127.0.0.1:9", leads=False)
        code, out, err = command(*asked)
        assert (code, out) == (1, "")
        assert "no capture of the cluster leads at the moment; soon one of these does: c1" in err
        if asked == ASKS_THE_OWNER[0]:
            code, out, err = command("capture", "list")
            assert (code, "c1" in out) == (0, True)
            assert "no capture of the cluster leads at the moment" in err
        forget(client, CaptureID("c1"))


def test_the_answer_of_the_next_owner_is_awaited(command: Command, etcd: EmbeddedEtcd) -> None:
    rows = [{"changefeed": "shop", "table": "shop.a", "capture": "c1"}]
    answers = [TryAgain("c1 is still taking over"), CallRefused("no"), {"rows": rows}]
    with serving(etcd, "c1", list_processors=[answers[0], answers[2]]):
        code, out, err = command("processor", "list", "--format", "json")
        assert (code, json.loads(out)["rows"]) == (0, rows)
        assert err.count("\n") == 1
        assert "c1 is still taking over" in err
    with serving(etcd, "c1", list_processors=[CallRefused("there is no changefeed x")]):
        assert command("processor", "list", "-c", "x") == (
            1, "", "tidelake: there is no changefeed x\n",
        )  # fmt: skip


def test_a_drain_is_waited_for_and_says_how_far_it_is(
    command: Command,
    etcd: EmbeddedEtcd,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streaming.operations.captures.AGAIN_S", 0.01)
    drain = ("capture", "drain", "--capture-id", "c1", "--format", "json")
    unknown = {"remaining": 1, "unknown": "capture c1 leads: it resigns first"}
    left = [unknown, {"remaining": 2, "unknown": ""}, {"remaining": 0, "unknown": ""}]
    with serving(etcd, "c1", drain_capture=[*left]):
        code, out, err = command(*drain)  # once
        (row,) = json.loads(out)["rows"]
        assert (code, err, row["remaining"], row["unknown"]) == (0, "", None, unknown["unknown"])
        assert row["changed"] == {"state": {"from": "serving", "to": "draining"}}
    with serving(etcd, "c1", drain_capture=[*left]):
        code, out, err = command(*drain, "--wait")
        (row,) = json.loads(out)["rows"]
        assert (code, row["remaining"]) == (0, 0)
        first, second = err.splitlines()
        assert first.endswith("s: capture c1 leads: it resigns first")
        assert second.endswith("s: capture c1 still has 2 tables")
    with serving(etcd, "c1", drain_capture=[left[1]]):
        code, out, err = command(*drain, "--wait", "--timeout", "50ms")
        assert (code, json.loads(out)["rows"][0]["remaining"]) == (3, 2)
        assert "capture c1 still has 2 tables. That is so after 0.05 s" in err.splitlines()[-1]
    with serving(etcd, "c0", drain_capture=[left[1], CallRefused("no capture c1 is registered")]):
        with client_of(etcd) as client:
            register(client, CaptureID("c1"), "127.0.0.1:9", leads=False)
            monkeypatch.setattr(
                "streaming.operations.captures.time.sleep",
                lambda _s: forget(client, CaptureID("c1")),
            )
            code, out, err = command(*drain, "--wait")  # its process ends meanwhile
        (row,) = json.loads(out)["rows"]
        assert (code, row["remaining"], row["state"]) == (0, 0, "ended")
    assert command(*drain, "--wait", "--undo")[0] == 2
    assert command(*drain, "--wait", "--timeout", "soon")[0] == 2


def test_a_move_tells_from_where(cluster: Cluster, command: Command, etcd: EmbeddedEtcd) -> None:
    move = ("table", "move", "-c", "shop", "--table", "shop.a", "--capture-id", "c2")
    with serving(etcd, "c1", move_table=[{"from": "c1"}, {"from": "c1"}, {"from": "c2"}]):
        assert changed(cluster(*move)) == {"capture": ("c1", "c2")}
        assert command(*move)[1].splitlines()[0] == "shop.a: capture: c1 → c2"
        assert command(*move)[1].splitlines()[0] == "shop.a: nothing is changed, it is so already"


def test_a_changefeed_whose_owner_is_gone_does_not_run(
    cluster: Cluster,
    etcd: EmbeddedEtcd,
    tmp_path: Path,
) -> None:
    """One that no capture has launched yet is normal: nothing of it is lost."""
    create(cluster, tmp_path)
    cluster_id = os.environ["TIDELAKE_CLUSTER_ID"]
    with client_of(etcd) as client:
        register(client, CaptureID("c1"), "a:1", leads=True)
        (found,) = read_changefeeds(client, cluster_id)
        name, row = found.name, (found.schedule or ScheduleRow()).launched(CaptureID("c1"))
        client.put(keys.schedule_key(cluster_id, name), dump(row))

        def state() -> tuple[str, str | None]:
            (listed,), (queried,) = (
                cluster("changefeed", "list"),
                cluster("changefeed", "query", "-c", "shop"),
            )
            assert listed["state"] == queried["state"]
            return queried["state"], queried["error"]

        assert state() == ("normal", None)
        forget(client, CaptureID("c1"))
        gone = "its owner, capture c1, is gone; "
        assert state() == ("not running", f"{gone}start a `tidelake server`")
        register(client, CaptureID("c2"), "b:2", leads=True)
        assert state() == ("not running", f"{gone}another one takes over: c2 at b:2")
        cluster("changefeed", "pause", "-c", "shop")
        assert state() == ("stopped", None)
        forget(client, CaptureID("c2"))
