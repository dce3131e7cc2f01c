"""A source whose messages are of another protocol than its URI says.

    nothing of it could be read, and no table is there ──► the changefeed stops, and says what the
                                                           messages look like
    ... but tables are there ──► dead letters, as any others, and a warning until one can be read

For the thread of the owner's reader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from conf.sources.source_uri import SourceSettings, is_at_least_once
from coordination.errors import ConfigError
from streaming.changefeed.refused.message_shape import (
    AVRO,
    CANAL,
    CSV,
    DEBEZIUM,
    MAXWELL,
    OPEN,
    PLAIN_CANAL,
    SIMPLE,
    SIMPLE_AVRO,
    UNWRAPPED,
    looks_like,
)
from streaming.protocols.contract import FAR_WATERMARK, OTHER_SOURCE, Block, Kind
from streaming.protocols.decoders import decoder_of, reads_messages

HANDFUL: Final = 5  # of messages that all look like one other protocol
MANY: Final = 20  # of any others
_NO_COMMIT_TS: Final = "no-commit-ts"
_ABOUT: Final = "protocol"
_NOT_COUNTED: Final = (FAR_WATERMARK, OTHER_SOURCE)
_WAYS: Final[Mapping[str, str]] = {
    CANAL: "set protocol=canal-json&enable-tidb-extension=true in --source-uri",
    PLAIN_CANAL: "set protocol=canal-json&at-least-once=true in --source-uri, or let TiCDC write "
    "enable-tidb-extension=true to a new topic",
    OPEN: "set protocol=open-protocol in --source-uri",
    SIMPLE: "set protocol=simple in --source-uri",
    SIMPLE_AVRO: "set protocol=simple&encoding-format=avro in --source-uri",
    DEBEZIUM: "set protocol=debezium in --source-uri, and at-least-once=true for connectors that "
    "are not TiCDC",
    MAXWELL: "set protocol=maxwell&at-least-once=true in --source-uri",
    AVRO: "set protocol=avro and schema-registry in --source-uri",
    CSV: "CSV is read from files alone (s3:// or file://): let TiCDC write canal-json to Kafka",
    UNWRAPPED: "take the transform out of the connector, since it takes away what is needed",
}


@dataclass(slots=True)
class WrongProtocol:
    """``place``: gives the name of a place for a sentence. ``say``: reports a concern about a
    subject; None: it is over."""

    source: SourceSettings
    place: Callable[[str, int], str]
    say: Callable[[str, str | None], None]
    _looks: Counter[str] = field(default_factory=Counter)
    _first: tuple[str, int, str] | None = None  # part, position, why it cannot be read
    _has_read: bool = False  # a message that means something

    def look(self, blocks: Iterable[Block]) -> None:
        """At the blocks of a read."""
        bad, means = [], {Kind.ROW, Kind.SCHEMA}
        if not is_at_least_once(self.source):  # else they are the reader's own
            means.add(Kind.WATERMARK)
        for block in blocks:
            if block.kind in means:
                self._has_read = True
                self._begin_again()
                return
            if block.kind is Kind.BAD:
                bad.append(block)
        for block in bad:
            if self._looks.total() < MANY:
                self._count(block)

    @property
    def is_all(self) -> bool:
        """Whether nothing else has been read yet. Then no place in the source is to be stored:
        read as what they are, these messages may get other numbers."""
        return bool(self._looks) and not self._has_read

    @property
    def protocol(self) -> str:
        return self.source.protocol

    def refuse(self, *, has_tables: bool) -> None:
        """Raises ConfigError if this is another protocol, as far as can be seen."""
        if (told := self._told()) is None:
            return
        if not (has_tables or self._has_read):
            raise ConfigError(told)
        self.say(_ABOUT, f"{told}. They are in _tidelake/dead_letters")

    def close(self) -> None:
        self._begin_again()

    def _begin_again(self) -> None:
        if self._looks:
            self.say(_ABOUT, None)
            self._looks, self._first = Counter(), None

    def _count(self, block: Block) -> None:
        names = ["position", "error_class", "error_message", "value"]
        has_keys = reads_messages(self.protocol) and decoder_of(self.protocol).reads_keys
        for each in block.table().select(names).slice(0, MANY).to_pylist():
            if each["error_class"] in _NOT_COUNTED or each["value"] is None:
                continue
            like = looks_like(each["value"], has_key=has_keys)
            if like.startswith(self.protocol) and each["error_class"] != _NO_COMMIT_TS:
                like = ""  # it is of this protocol, and damaged
            self._looks[like] += 1
            if self._first is None:
                self._first = block.part, each["position"], each["error_message"] or ""

    def _told(self) -> str | None:
        """In a sentence; None: it is not so, or may not be so yet."""
        count = self._looks.total()
        like = next(iter(self._looks), "")
        is_one = bool(like) and len(self._looks) == 1
        if self._first is None or count < (HANDFUL if is_one else MANY):
            return None
        part, position, why = self._first
        said = (
            f"no message from {self.place(part, position)} on can be read with "
            f"protocol={self.protocol} ({why})"
        )
        if not is_one:
            return f"{said}: set `protocol` in --source-uri to what their sender writes"
        return f"{said}. They look like {like}: {_WAYS[like]}"
