"""The URI of a recording: a file on this machine with the messages of a topic, one a line.

The parameters are those of the Kafka URI whose messages were recorded. Those about the messages are
used, those about Kafka (login, TLS, topics) are ignored: the rest of that URI may stay as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, unquote

from conf.problems import Problems, require
from conf.sources.large_messages import NOTHING_LARGE, LargeMessages
from conf.sources.schema_registry import SchemaRegistry
from conf.sources.source_parameters import AT_LEAST_ONCE, message_settings

SCHEME = "file"
ENDINGS = (".jsonl", ".jsonl.gz")
FORM = "it must look like file:///path/to/messages.jsonl?protocol=canal-json (or .jsonl.gz)"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingSettings:
    """``file:///path/messages.jsonl?protocol=canal-json&…``: messages of a topic, one a line."""

    path: str  # absolute, on this machine; ends in .jsonl or .jsonl.gz
    protocol: str
    partition_num: int | None = None  # of the recorded topic: as in `KafkaSettings`
    time_zone: str = "UTC"
    large: LargeMessages = NOTHING_LARGE
    is_numbered: bool = False  # its messages have no commit-ts: at least once
    lower_names: bool | None = None  # lower_case_table_names is 1 or 2; None: DDLs and rows tell
    registry: SchemaRegistry | None = None  # of Avro's schemas; None: the protocol has none
    tells_updates: bool = True  # else an UPDATE comes as an INSERT does: it has no old row

    @property
    def name(self) -> str:
        """The file's name without its endings."""
        return self.path.rpartition("/")[2].removesuffix(".gz").removesuffix(".jsonl")

    @property
    def uri(self) -> str:
        """As for Kafka."""
        more = f"&{AT_LEAST_ONCE}=true" if self.is_numbered else ""
        return f"file://{quote(self.path)}?protocol={self.protocol}{more}"

    @property
    def agreed(self) -> dict[str, str | int | None]:
        """As for Kafka."""
        return {"recording": self.path, "partition-num": self.partition_num}


def parse_recording_uri(parts: SplitResult, parameters: Mapping[str, str]) -> RecordingSettings:
    """Whether the file exists is not checked here. Raises SettingError."""
    problems = Problems()
    made = message_settings(parameters, problems)
    with problems.noted():
        made["path"] = _path(parts.netloc, unquote(parts.path))
    problems.refuse()
    return RecordingSettings(**made)


def _path(host: str, path: str) -> str:
    require(
        host in ("", "localhost"),
        f"file://{host}{path} is relative: write file:/// and an absolute path",
    )
    require(path.startswith("/"), f"{path!r} is relative: write file:/// and an absolute path")
    require(
        path.endswith(ENDINGS),
        f"{path} is no recording: {FORM}",
    )
    require("\0" not in path, f"{path!r} cannot be a file's name")
    return path
