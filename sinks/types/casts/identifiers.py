"""MariaDB's UUID, INET4 and INET6: from the bytes that it stores, and as it writes them."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from itertools import groupby
from typing import Final
from uuid import UUID

import numpy as np
import pyarrow as pa

from sinks.types.mysql_type import MySQLType
from sinks.types.text_arrays import CastColumn

_WORDS: Final = 8  # of an IPv6 address
_IPV4_AT: Final = 6  # the words from there on may be written as an IPv4 address


def cast_identifiers(cells: pa.Array, mysql_type: MySQLType) -> CastColumn:
    """Bytes, or texts in any form, as the text with which the server answers a SELECT."""
    width, of_bytes, of_text = _READ[mysql_type.name]
    encoded = cells.dictionary_encode()
    found: list[str | None] = []
    is_bad = np.zeros(len(encoded.dictionary), np.bool_)
    for number, value in enumerate(encoded.dictionary.to_pylist()):
        raw = value if isinstance(value, bytes) else of_text(value)
        is_good = raw is not None and len(raw) == width
        is_bad[number] = not is_good
        found.append(of_bytes(raw) if raw is not None and is_good else None)
    values = pa.array(found, pa.string()).take(encoded.indices)
    if not is_bad.any():
        return CastColumn(values=values, failed=None)
    failed = pa.array(is_bad).take(encoded.indices).fill_null(False)
    return CastColumn(values=values, failed=failed)


def uuid_text(raw: bytes) -> str:
    return str(UUID(bytes=raw))


def inet4_text(raw: bytes) -> str:
    return ".".join(map(str, raw))


def inet6_text(raw: bytes) -> str:
    """The first of the longest runs of zeros is left out, also if it is one zero. Behind six zeros,
    or five and ``ffff``, stands an IPv4 address."""
    words = [int.from_bytes(raw[at : at + 2]) for at in range(0, len(raw), 2)]
    begin, length = _longest_zeros(words)
    shown = [f"{word:x}" for word in words]
    if begin == 0 and (length == _IPV4_AT or (length == _IPV4_AT - 1 and words[5] == 0xFFFF)):
        shown = [*shown[:_IPV4_AT], inet4_text(raw[2 * _IPV4_AT :])]
    if not length:
        return ":".join(shown)
    return ":".join(shown[:begin]) + "::" + ":".join(shown[begin + length :])


def _longest_zeros(words: list[int]) -> tuple[int, int]:
    """Where the first of the longest runs begins, and its length."""
    best, at = (0, 0), 0
    for is_zero, run in groupby(words, lambda word: word == 0):
        length = len(list(run))
        if is_zero and length > best[1]:
            best = at, length
        at += length
    return best


def _read_uuid(text: str) -> bytes | None:
    try:
        return UUID(text).bytes
    except ValueError:
        return None


def _read_inet4(text: str) -> bytes | None:
    try:
        return IPv4Address(text).packed
    except AddressValueError:
        return None


def _read_inet6(text: str) -> bytes | None:
    try:
        return IPv6Address(text).packed
    except AddressValueError:
        return None


_READ: Final[dict[str, tuple[int, Callable[[bytes], str], Callable[[str], bytes | None]]]] = {
    "uuid": (16, uuid_text, _read_uuid),
    "inet4": (4, inet4_text, _read_inet4),
    "inet6": (2 * _WORDS, inet6_text, _read_inet6),
}
