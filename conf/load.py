"""Fill the settings tree from a file, the environment and arguments; the last one wins.

``run`` reads a changefeed file. ``server`` reads a server file, which says nothing about
changefeeds: those are in etcd. Anything wrong raises SettingError, with a sentence that names the
key and where it came from.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast

from conf.column_rules import columns_of_sink
from conf.files.keys import CAPTURE_KEYS, CHANGEFEED_KEYS, OWN_KEYS, SERVER_KEYS, Key
from conf.files.reading import (
    Document,
    ModelName,
    check,
    parse,
    read_checked,
    refuse,
    with_schema_text,
)
from conf.files.row_filters import check_row_filters
from conf.files.sink_table import (
    as_parameters,
    dispatched_topics,
    kafka_config,
    sink_parameters,
)
from conf.forms import other_unit
from conf.problems import Problems, SettingError, require, unknown
from conf.route_rules import route_rules
from conf.rows.event_filter import EventFilter
from conf.secret_references import parse_reference
from conf.settings import (
    ANY_LOCAL_PORT,
    BatchSettings,
    CaptureSettings,
    Changefeed,
    DeltaSink,
    EtcdSettings,
    FilterSettings,
    SessionSettings,
    Settings,
    TableRule,
    TransportSettings,
)
from conf.sink_uri import parse_sink_uri
from conf.sources.binlog_uri import BinlogSettings, check_target
from conf.sources.kafka_security import FALSE, TRUE
from conf.sources.kafka_uri import KafkaSettings
from conf.sources.source_parameters import check_names
from conf.sources.source_uri import (
    SourceSettings,
    changefeed_id,
    check_parameters,
    is_binlog_uri,
    is_tidb_uri,
    parse_source_uri,
)
from conf.sources.tidb_uri import check_start
from conf.task.changefeed import check_mode, settings_of_run
from conf.task.file import TaskDescription

PREFIX = "TIDELAKE_"
CONFIG_VARIABLE = "TIDELAKE_CONFIG"
# Variables with the prefix that other modules read.
NOT_SETTINGS = frozenset({CONFIG_VARIABLE, "TIDELAKE_FAILPOINTS", "TIDELAKE_JARS"})

_ENDPOINT = re.compile(r"^https?://(\[[0-9a-fA-F:.]+\]|[^:\[\]@/\s]+):\d{1,5}/?$")


def load_settings(
    *,
    config: Path | None,
    environment: Mapping[str, str],
    arguments: Mapping[str, object],
    task: TaskDescription | None = None,
) -> Settings:
    """The settings of a `run`. Raises SettingError. ``arguments`` has kebab-case keys; None is the
    value of an argument that was not given. ``task``: a task file, for the source and the tables;
    a changefeed file then has the rest."""
    document, values = _read(config, environment, arguments)
    problems, made = Problems(), dict[str, Any]()
    try:
        if task is not None:
            document, values = settings_of_run(task, document, values, arguments)
        with problems.noted():
            made["changefeed"] = load_changefeed(document, values)
            check_target(made["changefeed"].source, values.get("target-ts") or None)
            check_start(made["changefeed"].source, values)
            if task is not None:
                check_mode(task, made["changefeed"])
        made |= _of_a_capture({"addr": ANY_LOCAL_PORT, **values}, problems)
        problems.refuse()
        return Settings(**made)
    except SettingError as error:
        if config is None:
            raise
        raise SettingError(f"{error} (with {config})") from error


def load_server(
    *,
    config: Path | None,
    environment: Mapping[str, str],
    arguments: Mapping[str, object],
    model: ModelName = "ServerFile",
) -> CaptureSettings:
    """The settings of a `server`. Raises SettingError. With "ChangefeedFile" as ``model``: the
    settings of an operator's command, whose changefeed file says how the cluster is reached."""
    values, problems = dict[str, Any](), Problems()
    with problems.noted():
        document = read_checked(config, model) if config is not None else {}
        values = {**document, **document.get("security", {})}
    with problems.noted():
        values |= from_environment(environment)
    problems.refuse()
    values |= {name: value for name, value in arguments.items() if value is not None}
    made = _of_a_capture(values, problems)
    problems.refuse()
    return CaptureSettings(**made)


def _of_a_capture(values: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    values = _checked(values, {**CAPTURE_KEYS, **SERVER_KEYS}, problems)
    made = _given(CaptureSettings, values)
    with problems.noted():
        made["etcd"] = _etcd(values)
    with problems.noted():
        made["session"] = SessionSettings(**_given(SessionSettings, values))
    with problems.noted():
        made["batch"] = BatchSettings(**_given(BatchSettings, values))
    with problems.noted():
        made["transport"] = TransportSettings(**_given(TransportSettings, values))
    return made


def _checked(
    values: Mapping[str, Any], keys: Collection[str], problems: Problems
) -> dict[str, Any]:
    """The values of these keys. Refused values are left out, and told in ``problems``."""
    own = {name: each for name, each in values.items() if name in keys and each is not None}
    found = check(own, "GivenValues")
    with problems.noted():
        refuse(found)
    return {name: each for name, each in own.items() if name not in found}


def _given(part: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of one part of the settings tree for which there are values, by field name."""
    keys = {each.metadata.get("key"): each.name for each in fields(part)}
    found = {keys[name]: value for name, value in values.items() if name in keys}
    return {name: tuple(each) if isinstance(each, list) else each for name, each in found.items()}


def _read(
    config: Path | None, environment: Mapping[str, str], arguments: Mapping[str, object]
) -> tuple[Document, dict[str, Any]]:
    """The checked file, and the values of Tidelake's own keys from file, environment and arguments.

    One SettingError lists all refused names of all three, so that a user corrects them at once."""
    document = parse(config) if config is not None else {}
    problems, given = Problems(), dict[str, Any]()
    with problems.noted(f"{config}: "):
        refuse(check(document, "ChangefeedFile"))
    with problems.noted(f"{config}: sink.kafka-config: "):
        check_names(kafka_config(document))
    with problems.noted():
        given |= from_environment(environment)
    given |= {name: value for name, value in arguments.items() if value is not None}
    values = {name: document[name] for name in OWN_KEYS if name in document} | given
    if problems.found:
        with problems.noted("source-uri: "):
            check_parameters(str(values.get("source-uri", "")))
    problems.refuse()
    return document, with_schema_text(values)


def load_sink(
    *, config: Path | None, environment: Mapping[str, str], sink_uri: str | None
) -> DeltaSink:
    """The warehouse and its storage options, for commands that need nothing else of a changefeed.
    Raises SettingError."""
    document = read_checked(config) if config is not None else {}
    values = {**document, **from_environment(environment)}
    options = _string_items("storage-options", document)
    warehouse = warehouse_of(sink_uri or values.get("sink-uri"))
    return DeltaSink(warehouse=warehouse, storage_options=options)


def load_source(
    *, config: Path | None, environment: Mapping[str, str], source_uri: str | None
) -> SourceSettings:
    """The source alone, as ``load_sink``. Raises SettingError."""
    document = read_checked(config) if config is not None else {}
    values = {**document, **from_environment(environment)}
    return _source(document, {**values, **({"source-uri": source_uri} if source_uri else {})})


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """``TIDELAKE_TARGET_TS=5`` as ``{"target-ts": 5}``. An empty variable counts as not set. Raises
    SettingError for an unknown variable or a value of the wrong kind."""
    known = {**OWN_KEYS, **SERVER_KEYS}
    names = {PREFIX + key.upper().replace("-", "_"): key for key in known}
    given: dict[str, Any] = {}
    problems = Problems()
    for variable, text in environment.items():
        if not variable.startswith(PREFIX) or variable in NOT_SETTINGS or text == "":
            continue
        with problems.noted():
            require(variable in names, unknown("environment variable", variable, names))
            given[names[variable]] = _parsed(text, known[names[variable]])
    variables = {key: variable for variable, key in names.items()}
    with problems.noted():
        refuse(check(given, "GivenValues", variables.__getitem__))
    problems.refuse()
    return given


def changefeed_document(config: Path | None, environment: Mapping[str, str]) -> Document:
    """The changefeed as file and environment describe it, without the keys about the captures that
    will serve it (such as where etcd is, or how long a lease lasts). Raises SettingError."""
    document = read_checked(config) if config is not None else {}
    given = {**document, **from_environment(environment)}
    foreign = {**OWN_KEYS, **SERVER_KEYS}.keys() - CHANGEFEED_KEYS.keys()
    return with_schema_text({key: each for key, each in given.items() if key not in foreign})


def _parsed(text: str, key: Key) -> Any:
    """The text of a variable as its key's kind of value; the text itself where it is none."""
    if key.is_list:
        return [each.strip() for each in text.split(",")]
    if key.parse is bool:
        return text in TRUE if text in TRUE | FALSE else text
    with contextlib.suppress(ValueError):
        return key.parse(text)
    return text


def load_changefeed(document: Document, values: Mapping[str, Any]) -> Changefeed:
    """The changefeed of the settings tree. Raises SettingError. ``values`` are the values of
    Tidelake's own keys, from file, environment and arguments; of ``document`` only the tables
    (such as ``[sink]`` and ``[filter]``) are read.
    """
    problems = Problems()
    values = {**document.get("integrity", {}), **values}
    values = _checked(values, CHANGEFEED_KEYS, problems)
    if values.get("target-ts") == 0:
        del values["target-ts"]
    made = _given(Changefeed, values)
    sink = _given(DeltaSink, values)
    with problems.noted():
        made["source"] = source = _source(document, values)
        made["id"] = changefeed_id(values.get("changefeed-id"), source)
    with problems.noted():
        sink["warehouse"] = _warehouse(values, made.get("source"))
    with problems.noted():
        sink["tables"] = _table_rules(document, made.get("source"))
    with problems.noted():
        sink["routes"] = route_rules(document.get("sink", {}).get("routes", ()))
        sink |= columns_of_sink(document.get("sink", {}))
    with problems.noted():
        sink["storage_options"] = _string_items("storage-options", document)
    with problems.noted():
        made["filter"] = _filter(document.get("filter", {}), values, made.get("source"))
    with problems.noted():
        for name in ("start-ts", "target-ts", "overwrite-checkpoint-ts"):
            check_ts(name, values.get(name))
    problems.refuse()
    return Changefeed(sink=DeltaSink(**sink), **made)


def check_ts(name: str, ts: int | None) -> None:
    """Raise SettingError for a number that is no TSO."""
    require(ts is None or 0 <= ts < 2**63, f"{name}={ts} must be a TSO, 0 or above")
    other = None if ts is None else other_unit(ts)
    require(other is None, f"{name}={other}")


def _table_rules(document: Document, source: SourceSettings | None) -> tuple[TableRule, ...]:
    rows = document.get("sink", {}).get("tables", ())
    rules = tuple(TableRule(**_given(TableRule, row)) for row in rows)
    require(all(rule.matcher for rule in rules), "sink.tables: one of them has no matcher")
    require(
        source is None or isinstance(source, BinlogSettings) or all(r.key != "rows" for r in rules),
        "sink.tables: key = 'rows' counts rows, and messages of TiCDC and Debezium may come twice, "
        "where nothing tells a second row from a second message: read the database's binlog, or "
        "take key = 'all-columns' or write-mode = 'append'",
    )
    require(
        not document.get("force-replicate")
        or any(rule.key or rule.write_mode == "append" for rule in rules),
        "force-replicate sends tables without a key too: give them write-mode = 'append' or key = "
        "'all-columns' in [[sink.tables]], or leave it out",
    )
    return rules


def _warehouse(values: Mapping[str, Any], source: SourceSettings | None) -> str:
    own = None
    if isinstance(source, BinlogSettings):
        own = source.own_warehouse
    return own or warehouse_of(values.get("sink-uri"))


def warehouse_of(uri: str | None) -> str:
    """The warehouse of a sink URI. Raises SettingError, whose message names ``sink-uri``."""
    require(bool(uri), "sink-uri is missing: --sink-uri delta:///path/to/warehouse")
    try:
        return parse_sink_uri(cast(str, uri))
    except SettingError as error:
        raise SettingError(f"sink-uri: {error}") from error


def _source(document: Document, values: Mapping[str, Any]) -> SourceSettings:
    uri = values.get("source-uri")
    require(
        bool(uri),
        "source-uri is missing: give the sink URI that TiCDC was given, or mysql://user@host:3306/",
    )
    sink = document.get("sink", {})
    problems = Problems()
    with problems.noted("source-uri: "):
        defaults = _parameters(document, cast(str, uri))
        topics = dispatched_topics(sink, cast(str, uri))
        source = parse_source_uri(cast(str, uri), defaults=defaults, topics=topics)
    problems.refuse()
    if not isinstance(source, KafkaSettings):  # what is set about Kafka has no effect
        return source
    own = _given(KafkaSettings, values)
    for name, value in own.items():
        parse_reference(f"kafka-{name.replace('_', '-')}", value)
    return replace(source, **{name: value for name, value in own.items() if value})


def _parameters(document: Document, uri: str) -> dict[str, str]:
    """The parameters of a source of that URI which stand in the file."""
    if is_tidb_uri(uri):
        return {}  # the file is that of the changefeed which goes on from Kafka
    if is_binlog_uri(uri):
        return as_parameters(document.get("mysql", {}))
    return sink_parameters(document.get("sink", {}), uri)


def _filter(
    table: Document, values: Mapping[str, Any], source: SourceSettings | None
) -> FilterSettings:
    rows = table.get("event-filters", ())
    filters = tuple(EventFilter(**_given(EventFilter, row)) for row in rows)
    made = _given(FilterSettings, {**values, **table})
    if not made.get("rules"):
        made.pop("rules", None)  # TiCDC: no rules are *.*
    found = FilterSettings(event_filters=filters, **made)
    if source is not None:
        check_row_filters(found, source, rows)
    return found


def _etcd(values: Mapping[str, Any]) -> EtcdSettings:
    """The key ``etcd`` holds endpoints, separated by commas, or ``embedded``."""
    text, own = values.get("etcd", "embedded"), _given(EtcdSettings, values)
    for name in ("user", "password"):
        parse_reference(f"etcd-{name}", own.get(name) or "")
    if text == "embedded":
        return EtcdSettings(**own)
    endpoints = tuple(
        endpoint.strip().rstrip("/") for endpoint in text.split(",") if endpoint.strip()
    )
    require(endpoints != (), "etcd: 'embedded' or http://host:2379, several by comma")
    for endpoint in endpoints:
        require(
            "@" not in endpoint,
            "etcd: a user goes into etcd-user and etcd-password, not before the host",
        )
        require(
            _ENDPOINT.match(endpoint) is not None,
            f"etcd: {endpoint!r} must be http://host:2379 (or https, or 'embedded' alone)",
        )
    return EtcdSettings(endpoints=endpoints, embedded=False, **own)


def _string_items(path: str, document: Document) -> tuple[tuple[str, str], ...]:
    table = document.get(path, {})
    refuse(check({path: table}, "ChangefeedFile"))
    for name, value in table.items():
        parse_reference(f"{path}.{name}", value)
    return tuple(sorted(table.items()))
