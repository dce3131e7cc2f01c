"""File, environment and arguments become one settings tree, or one clear line."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from conf.load import columns_of_sink, load_server, load_settings, load_sink
from conf.problems import SettingError
from conf.rows.event_filter import EventFilter
from conf.settings import (
    BatchSettings,
    CaptureSettings,
    Changefeed,
    DeltaSink,
    EtcdSettings,
    SessionSettings,
    Settings,
    TableRule,
    TransportSettings,
)

SOURCE = "kafka://h:9092/shop?protocol=canal-json&enable-tidb-extension=true"
URIS = {"source-uri": SOURCE, "sink-uri": "delta:///lake"}
ROOT = Path(__file__).resolve().parents[2]


def load(
    text: str | None = None,
    *,
    tmp_path: Path | None = None,
    environment: dict[str, str] | None = None,
    **arguments: object,
) -> Settings:
    config = None
    if text is not None:
        assert tmp_path is not None
        config = tmp_path / "changefeed.toml"
        config.write_text(text, encoding="utf-8")
    named = {name.replace("_", "-"): value for name, value in arguments.items()}
    return load_settings(config=config, environment=environment or {}, arguments=URIS | named)


def test_arguments_alone_are_enough():
    settings = load()
    assert settings.changefeed.id == "shop"
    assert settings.changefeed.sink == DeltaSink(warehouse="/lake")
    assert settings.etcd == EtcdSettings()
    assert settings.changefeed.filter.rules == ("*.*",)


def test_who_reads_from_kafka_and_where_it_stands(tmp_path: Path):
    source = load().changefeed.source
    assert (source.group_id, source.client_rack) == ("tidelake", None)
    text = "kafka-group-id = 'lake'\nkafka-client-rack = 'a'\n"
    environment = {"TIDELAKE_KAFKA_CLIENT_RACK": "${env:RACK}"}
    source = load(text, tmp_path=tmp_path, environment=environment).changefeed.source
    assert (source.group_id, source.client_rack) == ("lake", "${env:RACK}")
    with pytest.raises(SettingError, match="kafka-client-rack: a reference must be the whole"):
        load("kafka-client-rack = 'x${env:RACK}'", tmp_path=tmp_path)


def test_arguments_win_over_the_environment_and_that_over_the_file(tmp_path: Path):
    text = "start-ts = 1\ntarget-ts = 10\nlog-format = 'json'\n"
    environment = {"TIDELAKE_TARGET_TS": "20", "TIDELAKE_LOG_FORMAT": "text", "HOME": "x"}
    settings = load(text, tmp_path=tmp_path, environment=environment, target_ts=30)
    changefeed = settings.changefeed
    assert (changefeed.start_ts, changefeed.target_ts, settings.log_format) == (1, 30, "text")


WHOLE_FILE = """
changefeed-id = "eu-shop"
case-sensitive = true
memory-quota = 1073741824
apply-engine = "merge-on-write"
allow-unsafe-commits = true
zero-date = "fail"
on-error = "fail"
on-unknown-column = "drop"
etcd = "http://a:2379,https://b:2379/"
etcd-user = "root"
capture-session-ttl = 20
session-safety-margin-s = 1.5
max-batch-messages = 5
quiet-s = 1
force-replicate = true
enable-sync-point = false
[storage-options]
AWS_REGION = "eu-west-1"
[filter]
rules = ["shop.*", "!shop.tmp"]
[[filter.event-filters]]
matcher = ["shop.orders"]
ignore-event = ["truncate table"]
ignore-sql = ["^drop"]
ignore-delete-value-expr = ""
[scheduler]
enable-table-across-nodes = true
[mounter]
worker-num = 16
[consistent]
level = "none"
flush-interval = 2000
[integrity]
integrity-check-level = "none"
[sink]
protocol = "canal-json"
terminator = ""
topics = ["third"]
[[sink.dispatchers]]
matcher = ["shop.orders"]
topic = "orders"
partition = "index-value"
[[sink.dispatchers]]
matcher = ["*.*"]
topic = "{schema}_{table}"
[[sink.tables]]
matcher = ["shop.audit_*"]
write-mode = "append"
[[sink.tables]]
matcher = ["shop.bag"]
key = "all-columns"
[sink.kafka-config]
partition-num = 7
required-acks = -1
sasl-mechanism = "plain"
sasl-user = "u"
sasl-password = "p"
[sink.kafka-config.codec-config]
enable-tidb-extension = true
max-batch-size = 16
[sink.kafka-config.large-message-handle]
large-message-handle-option = "handle-key-only"
"""


def test_a_whole_file(tmp_path: Path):
    settings = load(
        WHOLE_FILE,
        tmp_path=tmp_path,
        source_uri="kafka://h:9092/shop",
    )
    changefeed = settings.changefeed
    assert changefeed.id == "eu-shop"
    assert changefeed.source.topics == ("shop", "orders", "third")
    assert changefeed.source.partition_num == 7
    assert changefeed.source.security.sasl_user == "u"
    assert changefeed.sink.storage_options == (("AWS_REGION", "eu-west-1"),)
    assert changefeed.sink.tables == (
        TableRule(matcher=("shop.audit_*",), write_mode="append"),
        TableRule(matcher=("shop.bag",), key="all-columns"),
    )
    assert changefeed.filter.case_sensitive
    assert changefeed.filter.event_filters == (
        EventFilter(
            matcher=("shop.orders",), ignore_event=("truncate table",), ignore_sql=("^drop",)
        ),
    )
    assert (changefeed.zero_date, changefeed.on_error) == ("fail", "fail")
    assert changefeed.on_unknown_column == "drop"
    assert settings.etcd.endpoints == ("http://a:2379", "https://b:2379")
    assert not settings.etcd.embedded
    assert settings.session == SessionSettings(ttl_s=20, safety_margin_s=1.5)
    assert settings.batch == BatchSettings(max_messages=5, quiet_s=1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a = ", "not TOML"),
        ("target-tz = 5", "unknown key 'target-tz'; did you mean target-ts?"),
        ("[filter]\nrule = []", "unknown key 'filter.rule'; did you mean rules?"),
        ("[[filter.event-filters]]\nmatchr = []", "'filter.event-filters.matchr'"),
        ("[sink.kafka-config]\npartition-nums = 3", "did you mean partition-num?"),
        ("[sink]\nprotocl = 'x'", "'sink.protocl'; did you mean protocol?"),
        ("start-ts = '5'", "start-ts must be an integer, not '5'"),
        ("start-ts = true", "start-ts must be an integer"),
        ("start-ts = -1", "start-ts=-1 must be a TSO"),
        ("filter = 5", "filter must be a table"),
        ("[filter]\nevent-filters = {}", "[[filter.event-filters]]"),
        ("[filter]\nrules = 'x'", "a list of strings"),
        ("zero-date = 'nil'", "zero-date: unknown value 'nil'"),
        ("[[filter.event-filters]]\nmatcher=['*.*']\nignore-event=['inserts']", "mean insert?"),
        ("[[filter.event-filters]]\nignore-event=['insert']", "no matcher"),
        ("[[filter.event-filters]]\nmatcher=['*.*']\nignore-sql=['(']", "regular expression"),
        ("force-replicate = true", "give them write-mode = 'append' or key = 'all-columns'"),
        ("bdr-mode = true", "not built yet"),
        ("[consistent]\nlevel = 'eventual'", "consistent.level is not built yet"),
        ("[integrity]\nintegrity-check-level = 'all'", "integrity-check-level: unknown value"),
        ("[[sink.column-selectors]]\nmatcher = ['*.*']", "selectors: one of them has no columns"),
        ("[filter]\nignore-txn-start-ts = [1]", "not built yet"),
        ("[[sink.dispatchers]]\nmatcher=['*.*']\ntopic='{name}'", "must look like prefix"),
        ("target-ts = 5\nstart-ts = 5", "target-ts 5 must be above start-ts 5"),
        ("capture-session-ttl = 1", "capture-session-ttl must be 2 or more, not 1"),
        ("max-batch-messages = 0", "max-batch-messages must be above 0, not 0"),
        ("changefeed-id = 'a_b'", "changefeed-id 'a_b'"),
        ("etcd = 'h:2379'", "'h:2379' must be http://host:2379"),
        ("etcd = ','", "'embedded' or http"),
        ("[storage-options]\nx = 5", "storage-options.x must be a string"),
    ],
)
def test_a_wrong_file_is_one_line_with_its_name(tmp_path: Path, text: str, says: str):
    with pytest.raises(SettingError) as raised:
        load(text, tmp_path=tmp_path)
    assert says in str(raised.value)
    assert "changefeed.toml" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_same_is_true_of_a_missing_file(tmp_path: Path):
    with pytest.raises(SettingError, match=r"nowhere\.toml: cannot be read"):
        load_settings(config=tmp_path / "nowhere.toml", environment={}, arguments={})


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        (
            {"TIDELAKE_APPLY_ENGINE": "merge-on-wirte"},
            "'merge-on-wirte': one of auto, merge-on-write, spark; did you mean merge-on-write?",
        ),
        ({"TIDELAKE_TARGET_TZ": "5"}, "did you mean TIDELAKE_TARGET_TS?"),
        ({"TIDELAKE_TARGET_TS": "x"}, "TIDELAKE_TARGET_TS must be an integer"),
        ({"TIDELAKE_CASE_SENSITIVE": "yes"}, "TIDELAKE_CASE_SENSITIVE must be true or false"),
        (
            {"TIDELAKE_APPLY_ENGINE": "flink"},
            "unknown value 'flink': one of auto, merge-on-write, spark",
        ),
    ],
)
def test_a_wrong_variable_is_one_line(environment: dict[str, str], says: str):
    with pytest.raises(SettingError) as raised:
        load(environment=environment)
    assert says in str(raised.value)


REFUSED_FILE = """
target-tz = 5
bdr-mode = true
start-ts = "5"
[filter]
rules = ["a.*"]
ignore-txn-start-ts = [1]
[[filter.event-filters]]
matcher = ["*.*"]
ignore-event = ["inserts", "all", "deltes"]
ignore-sql = ["(", "["]
[[filter.event-filters]]
matchr = []
[consistent]
level = "eventual"
[sink.kafka-config]
partition-nums = 3
"""


def test_all_that_is_refused_is_said_at_once_in_one_line(tmp_path: Path):
    with pytest.raises(SettingError) as raised:
        load(
            REFUSED_FILE,
            tmp_path=tmp_path,
            environment={"TIDELAKE_TARGET_TZ": "5", "TIDELAKE_APPLY_ENGINE": "flink"},
            source_uri=f"{SOURCE}&sasl-oauth-audience=x&partion-num=3",
        )
    line = str(raised.value)
    assert "\n" not in line
    assert line.startswith("15 settings are refused: (1) ")
    wanted = [
        *("target-tz", "bdr-mode", "start-ts must be", "ignore-txn-start-ts"),
        *("'inserts'", "'deltes'", "'('", "'['", "event-filters.matchr", "consistent.level"),
        *("TIDELAKE_TARGET_TZ", "'flink'"),
        *("'partition-nums'", "sasl-oauth-audience", "'partion-num'"),
    ]
    assert [each for each in wanted if each not in line] == []
    assert line.count("changefeed.toml: ") == 11


def test_what_is_refused_outside_of_the_file_is_said_at_once_too():
    with pytest.raises(SettingError) as raised:
        load(
            source_uri="kafka://h/t?protocol=craft",
            sink_uri="/lake",
            target_ts=-1,
            etcd="h",
            capture_session_ttl=1,
        )
    said = ("craft", "broker 'h'", "sink-uri: ", "target-ts=-1", "etcd: ", "capture-session-ttl")
    assert [each for each in said if each not in str(raised.value)] == []
    assert str(raised.value).startswith("6 settings are refused: ")


def test_so_it_is_for_a_server(tmp_path: Path):
    file = tmp_path / "server.toml"
    file.write_text('adr = "x"\nmtls = true\n[security]\nca-pth = "y"\n')
    with pytest.raises(SettingError) as raised:
        load_server(config=file, environment={"TIDELAKE_ADR": "x"}, arguments={})
    line = str(raised.value)
    assert line.startswith("4 settings are refused: (1) ")
    assert [each for each in ("'adr'", "'mtls'", "ca-pth", "_ADR") if each not in line] == []
    with pytest.raises(SettingError, match=r"^2 settings are refused: .*'h'.*'x': expected host"):
        load_server(config=None, environment={}, arguments={"etcd": "h", "addr": "x"})


def test_a_port_that_cannot_be_is_refused():
    """The system would listen at 34463, and others would be told 99999."""
    for name in ("addr", "advertise-addr"):
        with pytest.raises(SettingError, match=f"{name} 'h:99999': expected host:port"):
            load_server(config=None, environment={}, arguments={name: "h:99999"})


def test_who_may_call_a_capture_stands_in_the_file_or_in_variables(tmp_path: Path):
    file = tmp_path / "server.toml"
    file.write_text(
        '[security]\nca-path = "ca"\ncert-path = "c"\nkey-path = "k"\n'
        'cert-allowed-cn = ["a", "b"]\n'
    )
    made = load_server(config=file, environment={}, arguments={}).transport
    assert (made.ca_path, made.cert_allowed_cn, made.operator_allowed_cn) == ("ca", ("a", "b"), ())
    names = {"TIDELAKE_CERT_ALLOWED_CN": "a, c", "TIDELAKE_OPERATOR_ALLOWED_CN": "o"}
    made = load_server(config=file, environment=names, arguments={}).transport
    assert (made.cert_allowed_cn, made.operator_allowed_cn) == (("a", "c"), ("o",))


def test_one_problem_is_not_numbered(tmp_path: Path):
    with pytest.raises(SettingError) as raised:
        load("target-tz = 5", tmp_path=tmp_path)
    says = "unknown key 'target-tz'; did you mean target-ts?"
    assert str(raised.value) == f"{tmp_path}/changefeed.toml: {says}"


def test_variables_of_other_things_are_let_be():
    elsewhere = ("TIDELAKE_FAILPOINTS", "TIDELAKE_JARS", "TIDELAKE_CONFIG")
    load(environment={"TIDELAKE_ETCD": "", **dict.fromkeys(elsewhere, "x")})


def test_missing_uris_are_named():
    with pytest.raises(SettingError, match="source-uri is missing"):
        load_settings(config=None, environment={}, arguments={})
    with pytest.raises(SettingError, match="sink-uri is missing"):
        load_settings(config=None, environment={}, arguments={"source-uri": SOURCE})


def of_topic(topic: str) -> Settings:
    return load(source_uri=SOURCE.replace("shop", topic))


@pytest.mark.parametrize("topic", ["shop", "Shop-2-a", "t" * 128])
def test_a_changefeed_is_named_after_its_topic(topic: str):
    assert of_topic(topic).changefeed.id == topic


@pytest.mark.parametrize(
    ("topic", "says"),
    [
        ("shop_v1", "--changefeed-id shop-v1"),
        ("a.b__c", "--changefeed-id a-b-c"),
        ("-shop", "--changefeed-id shop"),
        ("t" * 200, "--changefeed-id tttt"),
        ("___", "--changefeed-id"),
    ],
)
def test_a_topic_that_cannot_be_an_id_is_never_bent_into_one(topic: str, says: str):
    with pytest.raises(SettingError) as raised:
        of_topic(topic)
    assert f"topic {topic!r} cannot be one" in str(raised.value)
    assert says in str(raised.value)
    given = load(source_uri=SOURCE.replace("shop", topic), changefeed_id="shop")
    assert (given.changefeed.id, given.changefeed.source.topic) == ("shop", topic)


def test_readers_need_the_sink_alone():
    assert load_sink(config=None, environment={}, sink_uri="delta:///a") == DeltaSink(
        warehouse="/a"
    )
    environment = {"TIDELAKE_SINK_URI": "delta+s3://b/c"}
    assert load_sink(config=None, environment=environment, sink_uri=None).warehouse == "s3://b/c"


@pytest.mark.parametrize("name", ["local.toml", "local-modes.toml", "production.toml"])
def test_the_files_in_conf_load(name: str):
    missing = URIS if name == "local.toml" else {}
    settings = load_settings(config=ROOT / "conf" / name, environment={}, arguments=missing)
    assert settings.etcd.embedded == name.startswith("local")


def test_every_plain_setting_has_a_key():
    """A field added to the tree and to nothing else could never be set."""
    composite: dict[type, set[str]] = {
        Changefeed: {"id", "source", "sink", "filter"},
        DeltaSink: {"warehouse", "tables", "routes", "storage_options", *columns_of_sink({})},
        EtcdSettings: {"endpoints", "embedded"},
        SessionSettings: set(),
        BatchSettings: set(),
        TransportSettings: set(),
        CaptureSettings: {"etcd", "session", "batch", "transport"},
    }
    for part, wanted in composite.items():
        assert {each.name for each in fields(part) if "key" not in each.metadata} == wanted
