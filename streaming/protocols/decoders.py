"""The protocols that are built, by their name in the source URI. Nothing else knows which one it
is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordination.errors import ConfigError
from coordination.model import TableName
from streaming.protocols.avro import decoder as avro
from streaming.protocols.avro import letters as avro_letters
from streaming.protocols.avro.decoder import Schemas
from streaming.protocols.canal_json import decoder as canal_json
from streaming.protocols.canal_json import flat_decoder as flat
from streaming.protocols.canal_json.disguise import disguise
from streaming.protocols.canal_json.flat_parser import one_row_each
from streaming.protocols.compressed import Texts, begin_as_texts, in_pieces, texts_of
from streaming.protocols.contract import Block, Decoder, Messages, Wanted, with_head
from streaming.protocols.csv import decoder as csv
from streaming.protocols.csv import losses as csv_losses
from streaming.protocols.debezium import decoder as debezium
from streaming.protocols.debezium import losses as debezium_losses
from streaming.protocols.json_text import claims as json_claims
from streaming.protocols.json_text.claims import claims_in
from streaming.protocols.maxwell import decoder as maxwell
from streaming.protocols.maxwell import losses as maxwell_losses
from streaming.protocols.maxwell.strict_parser import one_object_each
from streaming.protocols.open import claims as open_claims
from streaming.protocols.open import decoder as open_protocol
from streaming.protocols.open.compressed_events import are_texts, messages_of_texts
from streaming.protocols.open.frames import one_event_each
from streaming.protocols.rows.losses import Loss
from streaming.protocols.simple import claims as simple_claims
from streaming.protocols.simple import decoder as simple


class _Decode(Protocol):
    def __call__(self, messages: Messages, wanted: Wanted, *, start_ts: int) -> Iterator[Block]: ...


OwnTimes = Callable[[pa.Array], pa.Int64Array]
DdlMask = Callable[[pa.Array], npt.NDArray[np.bool_]]


class _DecodeBySchemas(Protocol):
    def __call__(
        self, messages: Messages, wanted: Wanted, *, start_ts: int, schemas: Schemas
    ) -> Iterator[Block]: ...


@dataclass(frozen=True, slots=True)
class Claims:
    """Rows that TiCDC has put into claim-check storage. ``marker``: in each message that has one.
    ``find``: their places, with their tables. ``fill``: the message with the bodies of these
    places."""

    marker: bytes
    find: Callable[[bytes], Mapping[str, TableName]]
    fill: Callable[[bytes, Mapping[str, bytes]], bytes]


@dataclass(frozen=True, slots=True)
class _Known:
    """``are_texts``: which messages are not compressed; ``texts``: the texts of messages.
    ``reads_keys``: see `contract.reads_keys`. ``one_event_each``: makes of a message one for each
    of its events with these indexes; None: a message has one event. ``disguise``: makes from a seed
    the function that exchanges the letters of a message's values; None: not built. ``own_ms``: for
    messages that have neither a commit-ts nor watermarks, when each was made: ms since 1970, null
    where it does not tell. ``are_ddls``: see `ProtocolDecoder`. ``by_schemas``: decodes where
    schemas of a registry are needed besides. ``has_topic_each``: each table has a topic of its own.
    ``has_safe_names``: see `rows/safe_names.py`. ``loss``: what TiCDC's messages of it cannot have,
    in a sentence; ``numbered_loss``: what those cannot have that a reader numbers. ``losses``,
    ``losses_of_others``: what both lose of columns. ``letter_of``: the bytes of a row's dead letter
    from its block's head, its message and its commit-ts; ``decode_letters``: decodes these, and
    messages as they were sent; None: ``decode`` does."""

    decode: _Decode
    claims: Claims
    are_texts: Callable[[pa.Array], npt.NDArray[np.bool_]] = begin_as_texts
    texts: Texts = texts_of
    reads_keys: bool = False
    one_event_each: Callable[[bytes, Sequence[int]], list[bytes]] | None = None
    disguise: Callable[[int], Callable[[bytes], bytes]] | None = None
    own_ms: OwnTimes | None = None
    are_ddls: DdlMask | None = None
    by_schemas: _DecodeBySchemas | None = None
    has_topic_each: bool = False
    has_safe_names: bool = False
    loss: str | None = None
    numbered_loss: str | None = None
    decode_letters: _Decode | None = None
    letter_of: Callable[[bytes, bytes, int], bytes] = lambda head, row, _: with_head(head, row)
    losses: Sequence[Loss] = ()
    losses_of_others: Sequence[Loss] = ()


def _all_texts(values: pa.Array) -> npt.NDArray[np.bool_]:
    return np.ones(len(values), np.bool_)


_NO_CLAIMS: Final = Claims(json_claims.MARKER, lambda _: {}, lambda message, _: message)
_PROTOCOLS: Final[Mapping[str, _Known]] = {
    "canal-json": _Known(
        canal_json.decode,
        Claims(json_claims.MARKER, *claims_in("_tidb")),
        disguise=disguise,
        one_event_each=one_row_each,
        own_ms=flat.own_ms,
    ),
    "open-protocol": _Known(
        open_protocol.decode,
        Claims(open_claims.MARKER, open_claims.find, open_claims.fill),
        are_texts=are_texts,
        texts=messages_of_texts,
        reads_keys=True,
        one_event_each=one_event_each,
    ),
    "avro": _Known(
        avro.decode,
        _NO_CLAIMS,
        are_texts=_all_texts,
        reads_keys=True,
        own_ms=avro.own_ms,
        by_schemas=avro.decode,
        has_topic_each=True,
        has_safe_names=True,
        loss=avro.LOSS,
        decode_letters=avro_letters.decode_letters,
        letter_of=avro_letters.letter_of,
    ),
    "csv": _Known(csv.decode, _NO_CLAIMS, are_texts=_all_texts),
    "debezium": _Known(
        debezium.decode,
        _NO_CLAIMS,
        are_texts=debezium.are_texts,
        texts=debezium.texts,
        reads_keys=True,
        own_ms=debezium.own_ms,
        are_ddls=debezium.are_ddls,
        numbered_loss=debezium.LOSS,
        losses=debezium_losses.TICDCS,
        losses_of_others=debezium_losses.CONNECTORS,
    ),
    "maxwell": _Known(
        maxwell.decode,
        _NO_CLAIMS,
        one_event_each=one_object_each,
        own_ms=maxwell.own_ms,
        numbered_loss=maxwell.LOSS,
        losses_of_others=maxwell_losses.LOSSES,
    ),
    "simple": _Known(
        simple.decode, Claims(simple_claims.MARKER, simple_claims.find, simple_claims.fill)
    ),
}


@dataclass(frozen=True, slots=True)
class ProtocolDecoder:
    """See `contract.Decoder`. It is sent to executors by its protocol's name."""

    protocol: str
    start_ts: int
    schemas: Schemas = field(default_factory=dict)

    @property
    def needs_schemas(self) -> bool:
        """Whether a registry is asked for schemas (`source/outside`)."""
        return _PROTOCOLS[self.protocol].by_schemas is not None

    @property
    def has_topic_each(self) -> bool:
        """Whether each table has a topic of its own. One whose table is gone gets no watermarks."""
        return _PROTOCOLS[self.protocol].has_topic_each

    @property
    def reads_keys(self) -> bool:
        return _PROTOCOLS[self.protocol].reads_keys

    @property
    def loss(self) -> str | None:
        return _PROTOCOLS[self.protocol].loss

    @property
    def numbered_loss(self) -> str | None:
        return _PROTOCOLS[self.protocol].numbered_loss

    @property
    def own_ms(self) -> OwnTimes | None:
        return _PROTOCOLS[self.protocol].own_ms

    @property
    def are_ddls(self) -> DdlMask | None:
        """Which messages are DDLs, where these may come in another partition than 0. Part of what
        numbers depend on, as ``own_ms``."""
        return _PROTOCOLS[self.protocol].are_ddls

    @property
    def claims(self) -> Claims:
        return _PROTOCOLS[self.protocol].claims

    def texts(self, messages: Messages) -> Iterator[Messages]:
        """The messages without their compression, in pieces where they had one."""
        known = _PROTOCOLS[self.protocol]
        if known.are_texts(messages.values).all():
            return iter((messages,))
        return in_pieces(messages, known.texts)

    def __call__(self, messages: Messages, wanted: Wanted) -> Iterator[Block]:
        known = _PROTOCOLS[self.protocol]
        for each in self.texts(messages):
            if known.by_schemas is None:
                yield from known.decode(each, wanted, start_ts=self.start_ts)
            else:
                start_ts, schemas = self.start_ts, self.schemas
                yield from known.by_schemas(each, wanted, start_ts=start_ts, schemas=schemas)


def decoder_of(protocol: str, *, start_ts: int = 0) -> ProtocolDecoder:
    """``start_ts``: rows and DDLs at or below it are not needed. Raises KeyError for a protocol
    that `conf` should have refused."""
    if protocol not in _PROTOCOLS:
        raise KeyError(protocol)
    return ProtocolDecoder(protocol, start_ts)


def has_safe_names(protocol: str) -> bool:
    """Whether its messages have names by `rows/safe_names.py`."""
    return protocol in _PROTOCOLS and _PROTOCOLS[protocol].has_safe_names


def losses_of(protocol: str, *, is_numbered: bool, lost_text: str | None = None) -> Sequence[Loss]:
    """What is lost of columns before the messages come. ``is_numbered``: without a commit-ts.
    ``lost_text``: of csv, the text that cannot be told from NULL."""
    if lost_text is not None:
        return csv_losses.losses_of(lost_text)
    known = _PROTOCOLS.get(protocol)
    if known is None:
        return ()
    return known.losses_of_others if is_numbered else known.losses


def reads_messages(protocol: str) -> bool:
    """Whether it is a protocol of messages: rows in files, say, have decoders of their own."""
    return protocol in _PROTOCOLS


@dataclass(frozen=True, slots=True)
class _LetterDecoder:
    """See `contract.Decoder`."""

    protocol: str

    def __call__(self, messages: Messages, wanted: Wanted) -> Iterator[Block]:
        decode = _PROTOCOLS[self.protocol].decode_letters
        assert decode is not None, "it has letters of its own"
        return decode(messages, wanted, start_ts=0)


def letter_decoder_of(protocol: str) -> ProtocolDecoder | Decoder:
    """Decodes dead letters, and messages as they were sent. A `ProtocolDecoder` where letters are
    messages."""
    has_own = _PROTOCOLS[protocol].decode_letters is not None
    return _LetterDecoder(protocol) if has_own else decoder_of(protocol)


def letter_of(protocol: str, head: bytes, row: bytes, commit_ts: int) -> bytes:
    """The bytes of a row's dead letter. ``head``: of its block (`contract.LETTER_HEAD`)."""
    return _PROTOCOLS[protocol].letter_of(head, row, commit_ts)


def one_message_each(protocol: str, message: bytes, indexes: Sequence[int]) -> list[bytes]:
    """For each of these rows of a message a message with that row alone."""
    made = _PROTOCOLS[protocol].one_event_each
    return [message] * len(indexes) if made is None else made(message, indexes)


def disguise_of(protocol: str, seed: int) -> Callable[[bytes], bytes]:
    """The function that exchanges the letters of a message's values (`canal_json/disguise.py`).
    Raises ConfigError where none is built."""
    made = _PROTOCOLS[protocol].disguise
    if made is None:
        raise ConfigError(f"--mask is not built yet for protocol={protocol}: record without it")
    return made(seed)
