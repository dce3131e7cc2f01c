"""A database as the source: its URI, its parameters, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf.files.json_schema import json_schema
from conf.files.models import ChangefeedFile
from conf.load import load_settings
from conf.masking import masked, masked_uri
from conf.problems import SettingError
from conf.settings import Settings
from conf.sources.binlog_uri import (
    PARAMETERS,
    BinlogSettings,
)
from conf.sources.source_uri import parse_source_uri

GOOD = "mysql://shop@db.example:3307/"
FROM_A_PLACE = f"{GOOD}?task-mode=incremental&binlog-name=mysql-bin.000007"


def load(uri: str, config: Path | None = None, **arguments: object) -> Settings:
    given = {"source-uri": uri, "sink-uri": "delta:///lake", **arguments}
    return load_settings(config=config, environment={}, arguments=given)


def refused(uri: str, config: Path | None = None) -> str:
    with pytest.raises(SettingError) as raised:
        load(uri, config)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_the_usual_uri() -> None:
    assert parse_source_uri(GOOD) == BinlogSettings(host="db.example", port=3307, user="shop")
    assert parse_source_uri("mariadb://u@h") == BinlogSettings(scheme="mariadb", host="h", user="u")


def test_several_servers() -> None:
    source = parse_source_uri("mysql://u@a:1,[::1],c:3/")
    assert isinstance(source, BinlogSettings)
    assert source.address == "a:1,[::1]:3306,c:3"
    assert [each.address for each in source.servers] == ["a:1", "[::1]:3306", "c:3"]
    assert source.servers[2] == BinlogSettings(host="c", port=3, user="u")


@pytest.mark.parametrize(
    "gtids",
    [
        "0-1-100,7-2-3",
        "5dc71f0e-e992-11f1-a644-02fc00000001:1-9:12",
        "5dc71f0e-e992-11f1-a644-02fc00000001:1-9:shop:1,fe528ace-e994-11f1-be49-02fc00000001:3",
    ],
)
def test_a_set_of_gtids_is_a_place(gtids: str) -> None:
    source = parse_source_uri(f"{GOOD}?task-mode=incremental&binlog-gtid={gtids}")
    assert isinstance(source, BinlogSettings)
    assert source.binlog_gtid == gtids


def test_every_parameter() -> None:
    source = parse_source_uri(
        "mysql://u:p%40%2F%3A@[::1]/?task-mode=incremental&binlog-name=mysql-bin.000007"
        "&binlog-pos=1234&tls=verify-ca&ca=/ca.pem&cert=/c.pem&key=/k.pem"
        "&connect-timeout-s=3&chunk-rows=1000&connections=8"
    )
    assert source == BinlogSettings(
        host="::1",
        user="u",
        password="p@/:",
        task_mode="incremental",
        binlog_name="mysql-bin.000007",
        binlog_pos=1234,
        tls="verify-ca",
        ca="/ca.pem",
        cert="/c.pem",
        key="/k.pem",
        connect_timeout_s=3,
        chunk_rows=1000,
        connections=8,
    )
    assert source.address == "[::1]:3306"
    assert source.uri == "mysql://[::1]:3306/?task-mode=incremental"
    assert "p@/:" not in repr(source)


@pytest.mark.parametrize(
    "uri",
    [
        "mysql://u:${env:SHOP}@h/",
        "mysql://u@h/?password=${env:SHOP}",
        "mysql://u@h/?password=$%7Benv%3ASHOP%7D",
    ],
)
def test_a_password_may_be_a_reference(uri: str) -> None:
    assert parse_source_uri(uri) == BinlogSettings(host="h", user="u", password="${env:SHOP}")


@pytest.mark.parametrize(
    ("parameters", "tls"),
    [
        ("", "preferred"),
        ("?ca=/ca.pem", "verify-identity"),
        ("?cert=/c.pem&key=/k.pem", "required"),
        ("?tls=verify-ca", "verify-ca"),
        ("?tls=off", "off"),
    ],
)
def test_tls(parameters: str, tls: str) -> None:
    source = parse_source_uri(f"{GOOD}{parameters}")
    assert isinstance(source, BinlogSettings)
    assert source.tls == tls


def test_a_changefeed_is_named_after_the_scheme() -> None:
    assert load(GOOD).changefeed.id == "mysql"
    assert load(GOOD.replace("mysql", "mariadb")).changefeed.id == "mariadb"


def test_a_file_gives_parameters_and_those_of_the_uri_win(tmp_path: Path) -> None:
    file = tmp_path / "changefeed.toml"
    file.write_text(
        "[mysql]\npassword = '${env:SHOP}'\nchunk-rows = 10\nconnections = 2\n"
        "[sink.kafka-config]\npartition-num = 2\n"
    )
    source = load(f"{GOOD}?connections=3", file, **{"changefeed-id": "shop"}).changefeed.source
    assert source == BinlogSettings(
        host="db.example",
        port=3307,
        user="shop",
        password="${env:SHOP}",
        chunk_rows=10,
        connections=3,
    )
    file.write_text("[mysql]\nchunk-row = 10\n")
    assert "did you mean chunk-rows?" in refused(GOOD, file)
    file.write_text("[mysql]\npassword = 5377531\n")
    assert "5377531" not in refused(GOOD, file)


def test_an_editor_learns_the_parameters() -> None:
    known = json_schema(ChangefeedFile)["$defs"]["Mysql"]["properties"]
    assert tuple(known) == PARAMETERS


@pytest.mark.parametrize("mode", ["load&sync", "load%26sync"])
def test_the_and_of_a_mode_may_stand_in_a_uri(mode: str) -> None:
    source = load(f"{GOOD}?task-mode={mode}&dump-dir=/data/dump").changefeed.source
    assert isinstance(source, BinlogSettings)
    assert (source.task_mode, source.dump_dir) == ("load&sync", "/data/dump")
    assert source.uri.endswith("/?task-mode=load%26sync")


def test_a_dump_needs_no_warehouse() -> None:
    values = {"sink-uri": None}
    found = load(f"{GOOD}?task-mode=dump&dump-dir=/data/dump", **values).changefeed
    assert found.sink.warehouse == "/data/dump"


@pytest.mark.parametrize("mode", ["full", "dump&dump-dir=/a"])
def test_what_ends_with_its_copy_has_no_target(mode: str) -> None:
    with pytest.raises(SettingError, match="ends with the copy: leave target-ts out"):
        load(f"{GOOD}?task-mode={mode}", **{"target-ts": 1 << 60})


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("mysql://u@/", "no host"),
        ("mysql://h/", "no user"),
        ("mysql://u@a:1,b:x/", "the port must be a number"),
        ("mysql://u@h:0/", "port 0"),
        ("mysql://u@h:99999/", "the port must be a number up to 65535"),
        ("mysql://u@h/shop", "path '/shop': databases and tables are chosen by [filter] rules"),
        (f"{GOOD}?task-mod=all", "'task-mod'; did you mean task-mode?"),
        (f"{GOOD}?task-mode=al", "unknown task-mode 'al': one of all, full, incremental"),
        (f"{GOOD}?task-mode=load", "dump, load&sync; did you mean load&sync?"),
        (f"{GOOD}?task-mode=dump", "task-mode=dump needs dump-dir, the local folder"),
        (f"{GOOD}?task-mode=full&dump-dir=/a", "dump-dir: only with task-mode=dump or load&sync"),
        (f"{GOOD}?task-mode=dump&dump-dir=s3://a", "dump-dir=s3://a: it must be a local folder"),
        (f"{GOOD}?tls=yes", "unknown tls 'yes': one of off, preferred"),
        (f"{GOOD}?protocol=canal-json", "unknown parameter 'protocol'"),
        (f"{GOOD}?tls=off&tls=off", "parameter tls is given twice"),
        (f"{GOOD}?binlog-gtid=0-1-2", "binlog-gtid: only with task-mode=incremental"),
        (f"{FROM_A_PLACE}&binlog-gtid=0-1-2", "a GTID is a place by itself"),
        (f"{GOOD}?task-mode=incremental&binlog-gtid=0-1", "binlog-gtid=0-1 is no set of GTIDs"),
        ("mysql://u@a:1,a:1/", "a stands twice"),
        ("mysql://u@a:1,/", "no host"),
        (f"{GOOD}?time-zone=UTC", "ddl-time-zone is the zone"),
        (f"{GOOD}?binlog-name=mysql-bin.000007", "only with task-mode=incremental"),
        (f"{GOOD}?task-mode=incremental&binlog-pos=4", "binlog-pos without binlog-name"),
        (FROM_A_PLACE.replace(".000007", ""), "binlog-name=mysql-bin is no binlog file"),
        (f"{FROM_A_PLACE}&binlog-pos=3", "binlog-pos=3 must be a position: 4 or above"),
        (f"{FROM_A_PLACE}&binlog-pos=4294967296", "must be a position"),
        (f"{GOOD}?server-id=7", "server-id: each connection takes one of its own"),
        (f"{GOOD}?connections=0", "connections=0 must be 1 to 1024"),
        (f"{GOOD}?chunk-rows=-1", "chunk-rows=-1 must be above 0"),
        (f"{GOOD}?connect-timeout-s=1.5", "connect-timeout-s=1.5 must be seconds"),
        (f"{GOOD}?cert=/c.pem", "cert and key go together"),
        (f"{GOOD}?ca=/ca.pem&tls=required", "tls=required checks no certificate: use verify-ca"),
        (f"{GOOD}?cert=/c&key=/k&tls=off", "but tls is off"),
        ("mysql://u:${vault:x}@h/", "password: ${vault:…} is not known"),
    ],
)
def test_what_cannot_be_read_is_one_clear_line(uri: str, says: str) -> None:
    line = refused(uri)
    assert says in line
    assert line.startswith("source-uri: ")
    assert "settings are refused" not in line


@pytest.mark.parametrize(
    "uri",
    [
        "mysql://u:a/s3cr@h/",
        "mysql://u:s3cr/b@h/",
        "mysql://u:a?s3cr@h/",
        "mysql://u:s3cr?b@h/",
        "mysql://u:a@b?s3cr@h/",
        "mysql://u:a?b&s3cr=c@h/",
        "mysql://u:a#s3cr@h/",
        "mysql://u:a:s3cr@h:x/",
        "mysql://u:a@s3cr@h/",
        "mysql://u:s3cr@h/?password=b",
        "mysql://u@h/?password=a&s3cr",
        "mysql://u:${env:A}s3cr@h/",
        "mysql://u:[s3cr@h/",
    ],
)
def test_no_refusal_repeats_a_password(uri: str) -> None:
    assert "s3cr" not in refused(uri)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("mysql://u:s3cr@h/?tls=off", "mysql://u:***@h/?tls=off"),
        ("mysql://u:a@s3cr@h/", "mysql://u:***@h/"),
        ("mysql://u:${env:SHOP}@h/", "mysql://u:${env:SHOP}@h/"),
        ("mysql://u@h/?password=s3cr&tls=off", "mysql://u@h/?password=***&tls=off"),
    ],
)
def test_a_password_is_masked(uri: str, shown: str) -> None:
    assert masked_uri(uri) == shown
    assert masked(f'"{uri}", b@c') == f'"{shown}", b@c'


@pytest.mark.parametrize("password", ["s3'cr", 's3"cr', "s3/cr", "s3 cr"])
def test_a_password_that_is_not_encoded_is_masked_in_the_arguments(password: str) -> None:
    assert masked_uri(f"mysql://u:{password}@h/") == "mysql://u:***@h/"
