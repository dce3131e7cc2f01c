"""Tidelake's own keys, by the part of the settings tree that reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from conf.settings import (
    BatchSettings,
    CaptureSettings,
    Changefeed,
    DeltaSink,
    EtcdSettings,
    FilterSettings,
    SessionSettings,
    TransportSettings,
)
from conf.sources.kafka_uri import KafkaSettings


@dataclass(frozen=True, slots=True)
class Key:
    """The facts about a key, without its value."""

    field: str  # the name in the settings tree
    type: Any  # with its bounds, and without None
    default: Any
    says: str

    @property
    def is_list(self) -> bool:
        return get_origin(self.type) is tuple

    @property
    def parse(self) -> Callable[[str], Any]:
        """Makes a value of a text; raises ValueError. For a key without a list."""
        bare = get_args(self.type)[0] if get_origin(self.type) is Annotated else self.type
        return str if get_origin(bare) is Literal else bare


def keys_of(*parts: type) -> dict[str, Key]:
    """The keys that these parts of the settings tree read: one for each field that is a
    `setting`."""
    found: dict[str, Key] = {}
    for part in parts:
        types = get_type_hints(part, include_extras=True)
        for each in fields(part):
            if (name := each.metadata.get("key")) is not None:
                says = each.metadata["says"]
                of = types[each.name]
                if get_origin(of) in (Union, UnionType):  # … | None
                    of = get_args(of)[0]
                found[name] = Key(each.name, of, each.default, says)
    return found


# Keys whose text becomes more than one value, or another one.
_CHANGEFEED_TEXTS = {
    "source-uri": "the source: the sink URI that TiCDC was given, a database (`mysql://`), a "
    "folder of TiCDC's storage sink (`file://`, `s3://`), or a recording (below)",
    "sink-uri": "the warehouse: `delta:///path`, `delta+s3://`, `delta+abfss://` or `delta+gs://`",
    "changefeed-id": "the changefeed's name in etcd and in the control tables: letters, digits, "
    "single hyphens. Without it, the topic's name, if that is a valid ID; of a database the URI's "
    "scheme",
    "schema-file": "a file with the CREATE TABLE statements of tables that existed before the "
    "start-ts, as they were then",
}
_ETCD = "the etcd where captures meet: `http://host:2379`, several by comma; `embedded`: one that "
_FILTER_KEYS = keys_of(FilterSettings)

# The keys that describe a changefeed; all other keys say how a capture works.
CHANGEFEED_KEYS = {
    **{name: Key(name, str, None, says) for name, says in _CHANGEFEED_TEXTS.items()},
    **keys_of(KafkaSettings, Changefeed, DeltaSink),
    "case-sensitive": _FILTER_KEYS["case-sensitive"],
}
CAPTURE_KEYS = {
    "etcd": Key("etcd", str, "embedded", f"{_ETCD}ends with this process"),
    **keys_of(EtcdSettings, SessionSettings, BatchSettings, CaptureSettings),
}
# At the top of a changefeed file, or in the environment (TIDELAKE_SOURCE_URI).
OWN_KEYS: Mapping[str, Key] = {**CHANGEFEED_KEYS, **CAPTURE_KEYS}
# The addresses of a capture, and the keys of its [security] table.
SERVER_KEYS = keys_of(TransportSettings)
ADDRESSES = ("addr", "advertise-addr")
