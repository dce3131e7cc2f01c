"""Each key and parameter that TiCDC knows is used, changes nothing, or is refused by one line that
says why. The lists are those of TiCDC 8.5 and of its new architecture (pingcap/ticdc), and of
releases back to 5.4: the structs of `pkg/config`, and what the sink of Kafka and its encoders read
from the sink URI. Those of the storage sink: tests/conf/sources/test_storage_uri.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from conf.load import load_settings
from conf.problems import SettingError
from conf.sources.source_parameters import KNOWN

KAFKA = "kafka://h:9092/shop?protocol=canal-json&enable-tidb-extension=true"
CSV = "s3://b/shop?protocol=csv&include-commit-ts=true"
Refused = tuple[str, str]  # a value, and what is said of it

MATCHER = "matcher = ['a.*']\n"
# By the table's head: the values of its keys, in TOML.
KEYS: Mapping[str, Mapping[str, str | Refused]] = {
    "": {
        "performance-mode": "'fast'",
        "memory-quota": "1073741824",
        "case-sensitive": "true",
        "force-replicate": ("true", "force-replicate sends tables without a key"),
        "check-gc-safe-point": "true",
        "enable-sync-point": "true",
        "enable-table-monitor": "true",
        "ignore-ineligible-table": "true",
        "bdr-mode": ("true", "no changes of its own"),
        "sync-point-interval": "'10m'",
        "sync-point-retention": "'24h'",
        "changefeed-error-stuck-duration": "'30m'",
        "enable-active-active": ("true", "TiDB settles conflicts"),
        "active-active-progress-interval": "'30m'",
        "active-active-sync-stats-interval": "'1m'",
        "event-collector-batch-count": "10",
        "event-collector-batch-bytes": "10",
        "sql-mode": "'ANSI'",
        "enable-old-value": ("false", "a changed key leaves the row of the old one"),
    },
    "[mounter]": {"worker-num": "16"},
    "[scheduler]": {
        "enable-table-across-nodes": "true",
        "region-threshold": "100000",
        "write-key-threshold": "0",
        "region-per-span": "1",
        "region-count-per-span": "100",
        "region-count-refresh-interval": "'5m'",
        "scheduling-task-count-per-node": "20",
        "enable-splittable-check": "true",
        "force-split": "true",
        "balance-score-threshold": "20",
        "min-traffic-percentage": "0.8",
        "max-traffic-percentage": "1.25",
    },
    "[synced-status]": {"synced-check-interval": "300", "checkpoint-interval": "15"},
    "[integrity]": {
        "integrity-check-level": "'correctness'",
        "corruption-handle-level": "'error'",
    },
    "[consistent]": {
        "level": ("'eventual'", "redo logs"),
        "max-log-size": "64",
        "flush-interval": "2000",
        "meta-flush-interval": "200",
        "event-collector-batch-count": "3",
        "encoding-worker-num": "16",
        "flush-worker-num": "8",
        "storage": "'s3://redo'",
        "use-file-backend": "true",
        "compression": "'lz4'",
        "flush-concurrency": "1",
        "memory-usage": "{ memory-quota-percentage = 50 }",
    },
    "[cyclic-replication]": {
        "enable": ("true", "no changes of its own"),
        "replica-id": "1",
        "filter-replica-ids": "[2]",
        "id-buckets": "4",
        "sync-ddl": "true",
    },
    "[filter]": {
        "rules": "['a.*']",
        "ignore-txn-start-ts": ("[1]", "messages do not carry start-ts"),
    },
    f"[[filter.event-filters]]\n{MATCHER}": {
        "ignore-event": "['all dml', 'drop table', 'add fulltext index', 'create hybrid index']",
        "ignore-sql": "['^drop']",
        "ignore-insert-value-expr": "'id >= 100'",
        "ignore-update-new-value-expr": "'id >= 100'",
        "ignore-update-old-value-expr": "'id >= 100'",
        "ignore-delete-value-expr": "'id >= 100'",
        "ignore-update-only-columns": ("['a']", 'say dml-filters = "ticdc"'),
    },
    "[sink]": {
        "transaction-atomicity": "'none'",
        "protocol": "'canal-json'",
        "schema-registry": "'http://r:8081'",
        "encoder-concurrency": "32",
        "terminator": '"\\r\\n"',
        "date-separator": "'day'",
        "enable-partition-separator": "true",
        "file-index-digit": "20",
        "enable-kafka-sink-v2": "true",
        "only-output-updated-columns": "true",
        "delete-only-output-handle-key-columns": "true",
        "content-compatible": "true",
        "safe-mode": "true",
        "advance-timeout-in-sec": "150",
        "send-bootstrap-interval-in-sec": "120",
        "send-bootstrap-in-msg-count": "10000",
        "send-bootstrap-to-all-partition": "true",
        "send-all-bootstrap-at-start": "true",
        "debezium-disable-schema": "true",
        "case-sensitive": ("true", "at the top of the file"),
        "force-replicate": "true",
        "integrity": "{ integrity-check-level = 'none' }",
        "pulsar-config": "{ pulsar-version = 'v2.10.0', oauth2 = { oauth2-scope = 'a' } }",
        "mysql-config": "{ worker-count = 8, ssl-ca = 'ca' }",
    },
    f"[[sink.dispatchers]]\n{MATCHER}": {
        "dispatcher": "'index-value'",
        "partition": "'ts'",
        "index": "'i'",
        "columns": "['a']",
        "topic": "'other'",
        "target-schema": ("'b'", "writes these tables under other names"),
        "target-table": ("'{table}_b'", "writes these tables under other names"),
    },
    f"[[sink.column-selectors]]\n{MATCHER}": {"columns": "['*', '!b']"},
    "[sink.open]": {"output-old-value": "false"},
    "[sink.debezium]": {"output-old-value": "false", "include-start-ts": "true"},
    "[sink.csv]": {
        "delimiter": "'|'",
        "quote": "''",
        "null": "'NULL'",
        "include-commit-ts": "true",
        "binary-encoding-method": "'hex'",
        "output-old-value": "true",
        "output-handle-key": "true",
        "output-field-header": "true",
    },
    "[sink.cloud-storage-config]": {
        "worker-count": "16",
        "flush-interval": "'5s'",
        "file-size": "67108864",
        "spool-disk-quota": "1",
        "spool-base-dir": "'/tmp'",
        "output-column-id": "true",
        "file-expiration-days": "3",
        "file-cleanup-cron-spec": "'0 0 2 * * *'",
        "flush-concurrency": "1",
        "use-table-id-as-path": "true",
        "output-raw-change-event": "true",
    },
    "[sink.kafka-config]": {
        "partition-num": "3",
        "replication-factor": "1",
        "kafka-version": "'2.4.0'",
        "max-message-bytes": "10485760",
        "compression": "'lz4'",
        "kafka-client-id": "'a'",
        "auto-create-topic": "true",
        "dial-timeout": "'10s'",
        "write-timeout": "'10s'",
        "read-timeout": "'10s'",
        "required-acks": "-1",
        "sasl-user": ("'u'", "without sasl-mechanism"),
        "sasl-password": ("'p'", "without sasl-mechanism"),
        "sasl-mechanism": ("'PLAIN'", "needs sasl-user and sasl-password"),
        **{
            f"sasl-gssapi-{name}": ("'a'", "Kerberos")
            for name in ("auth-type", "keytab-path", "kerberos-config-path", "service-name")
        },
        **{
            f"sasl-gssapi-{name}": ("'a'", "Kerberos")
            for name in ("user", "password", "realm", "disable-pafxfast")
        },
        "sasl-oauth-client-id": ("'a'", "without sasl-mechanism"),
        "sasl-oauth-client-secret": ("'a'", "without sasl-mechanism"),
        "sasl-oauth-token-url": ("'http://a'", "without sasl-mechanism"),
        "sasl-oauth-scopes": ("['a']", "without sasl-mechanism"),
        "sasl-oauth-grant-type": ("'a'", "without sasl-mechanism"),
        "sasl-oauth-audience": ("'a'", "is not built"),
        "enable-tls": "true",
        "ca": "'ca.pem'",
        "cert": ("'c.pem'", "cert and key go together"),
        "key": ("'k.pem'", "cert and key go together"),
        "insecure-skip-verify": "true",
        "glue-schema-registry-config": "{ region = 'a', registry-name = 'r', token = 't' }",
        "output-raw-change-event": "true",
    },
    "[sink.kafka-config.codec-config]": {
        "enable-tidb-extension": "true",
        "max-batch-size": "16",
        "avro-enable-watermark": "true",
        "avro-decimal-handling-mode": "'string'",
        "avro-bigint-unsigned-handling-mode": "'string'",
        "avro-include-before-value": "true",
        "encoding-format": "'json'",
        "output-row-key": "true",
    },
    "[sink.kafka-config.large-message-handle]": {
        "large-message-handle-option": "'handle-key-only'",
        "large-message-handle-compression": "'lz4'",
        "claim-check-storage-uri": "'s3://bucket/prefix'",
        "claim-check-raw-value": "true",
    },
}
PARAMETERS = (
    *("protocol", "partition-num", "replication-factor", "kafka-version", "max-message-bytes"),
    *("max-retry", "compression", "kafka-client-id", "auto-create-topic", "dial-timeout"),
    *("write-timeout", "read-timeout", "required-acks", "sasl-user", "sasl-password"),
    *("sasl-mechanism", "sasl-gssapi-auth-type", "sasl-gssapi-keytab-path"),
    *("sasl-gssapi-kerberos-config-path", "sasl-gssapi-service-name", "sasl-gssapi-user"),
    *("sasl-gssapi-password", "sasl-gssapi-realm", "sasl-gssapi-disable-pafxfast", "enable-tls"),
    *("ca", "cert", "key", "insecure-skip-verify", "enable-tidb-extension", "max-batch-size"),
    *("avro-decimal-handling-mode", "avro-bigint-unsigned-handling-mode"),
    *("avro-include-before-value", "avro-enable-watermark", "schema-registry"),
    *("only-output-updated-columns", "content-compatible", "debezium-disable-schema"),
    *("debezium-include-start-ts", "encoding-format", "output-row-key", "transaction-atomicity"),
)


def _each() -> Iterator[tuple[str, str, str, str]]:
    for head, keys in KEYS.items():
        for key, told in keys.items():
            value, says = (told, "") if isinstance(told, str) else told
            yield head, key, value, says


@pytest.mark.parametrize(("head", "key", "value", "says"), list(_each()))
def test_each_key_of_a_changefeed_file(
    tmp_path: Path, head: str, key: str, value: str, says: str
) -> None:
    file = tmp_path / "changefeed.toml"
    file.write_text(f"{head}\n{key} = {value}\n")
    uri = CSV if head in ("[sink.csv]", "[sink.cloud-storage-config]") else KAFKA
    if head == "[sink.cloud-storage-config]":
        uri += "&output-old-value=true"
    given = {"source-uri": uri, "sink-uri": "delta:///lake", "changefeed-id": "x"}
    if not says:
        load_settings(config=file, environment={}, arguments=given)
        return
    with pytest.raises(SettingError, match=says) as refused:
        load_settings(config=file, environment={}, arguments=given)
    assert key in str(refused.value) or "Kerberos" in says
    assert "unknown" not in str(refused.value)


def test_each_parameter_of_a_sink_uri_is_known() -> None:
    assert not set(PARAMETERS) - set(KNOWN)


@pytest.mark.parametrize(
    "keys",
    [
        "enable-old-value = true\nbdr-mode = false\nenable-active-active = false",
        "[consistent]\nlevel = 'none'",
        "[cyclic-replication]\nenable = false",
        "[sink]\ncase-sensitive = false",
        "[[sink.dispatchers]]\nmatcher = ['a.*']\ntarget-schema = ''\ntarget-table = ''",
        "[filter]\nignore-txn-start-ts = []",
        "[filter]\ndml-filters = 'ticdc'\n[[filter.event-filters]]\nmatcher = ['a.*']\n"
        "ignore-update-only-columns = ['a']",
    ],
)
def test_values_that_change_nothing_are_accepted(tmp_path: Path, keys: str) -> None:
    file = tmp_path / "changefeed.toml"
    file.write_text(keys)
    given = {"source-uri": KAFKA, "sink-uri": "delta:///lake"}
    load_settings(config=file, environment={}, arguments=given)
