"""Deletion vectors, as bytes: which ordinals (row numbers) of a data file are deleted.

We write one form: a file ``deletion_vector_<uuid>.bin`` beside the data, which the log names by
storage type ``u`` without a prefix, since some readers do not take inline or absolute vectors. We
read all forms of Delta's protocol (``u`` with a prefix, ``p``, ``i``; both magic numbers).
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap, BitMap64

from coordination.errors import TidelakeError
from sinks.merge_on_write.log.actions import DeletionVectorDescriptor

Ordinals = npt.NDArray[np.int64]

PORTABLE_MAGIC = 1681511377
NATIVE_MAGIC = 1681511376
FILE_VERSION = 1
UUID_TEXT_LENGTH = 20  # of 16 bytes in base 85
MAX_FILE_BYTES = 2 * 1024 * 1024  # of one .bin, unless a single vector is larger

_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85 = str.maketrans(_B85, _Z85)
_FROM_Z85 = str.maketrans(_Z85, _B85)


class BadVector(TidelakeError):
    """A vector that does not follow the protocol: so it is not known which rows of its data file
    are deleted."""


def serialize(vector: BitMap64) -> bytes:
    """The vector as the protocol stores it: magic number and portable 64-bit roaring bitmap."""
    return struct.pack("<i", PORTABLE_MAGIC) + bytes(vector.serialize())


def deserialize(data: bytes) -> BitMap64:
    """The vector in these bytes, of either magic number. Raises BadVector."""
    magic = struct.unpack_from("<i", data)[0] if len(data) >= 4 else None
    order = "<"
    if data[:4] == NATIVE_MAGIC.to_bytes(4, "big"):  # as in the protocol's own example
        magic, order = NATIVE_MAGIC, ">"
    try:
        if magic == PORTABLE_MAGIC:
            return BitMap64.deserialize(data[4:])
        if magic == NATIVE_MAGIC:
            return BitMap64(np.concatenate([np.empty(0, np.uint64), *_native_parts(data, order)]))
    except (ValueError, struct.error) as error:
        raise BadVector(f"a deletion vector of {len(data)} bytes is broken: {error}") from error
    raise BadVector(f"a deletion vector has the magic number {magic}, which is not known")


def _native_parts(data: bytes, order: str) -> Iterator[npt.NDArray[np.uint64]]:
    """Delta's older form: an array of 32-bit bitmaps; a bitmap's index is the upper half of its
    ordinals."""
    (count,) = struct.unpack_from(f"{order}i", data, 4)
    at = 8
    for high in range(count):
        (size,) = struct.unpack_from(f"{order}i", data, at)
        part = BitMap.deserialize(data[at + 4 : at + 4 + size])
        yield np.asarray(part.to_array(), dtype=np.uint64) + np.uint64(high << 32)
        at += 4 + size


def vector_files(
    vectors: Sequence[BitMap64],
) -> Iterator[tuple[str, bytes, list[DeletionVectorDescriptor]]]:
    """The files that hold these vectors, in order: each file's name and content, and the
    descriptors of the vectors in it."""
    body = bytearray([FILE_VERSION])
    found: list[DeletionVectorDescriptor] = []
    name = uuid.uuid4()
    for vector in vectors:
        data = serialize(vector)
        if found and len(body) + 4 + len(data) + 4 > MAX_FILE_BYTES:
            yield vector_path(name), bytes(body), found
            body, found, name = bytearray([FILE_VERSION]), [], uuid.uuid4()
        found.append(
            DeletionVectorDescriptor(
                storage_type="u",
                path_or_inline=z85_encode(name.bytes),
                offset=len(body),
                size_in_bytes=len(data),
                cardinality=len(vector),
            )
        )
        body += struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    if found:
        yield vector_path(name), bytes(body), found


def read_vector(content: bytes, descriptor: DeletionVectorDescriptor) -> BitMap64:
    """The vector of a descriptor. ``content``: its whole file, or b"" for an inline vector. Raises
    BadVector."""
    if descriptor.storage_type == "i":
        data = z85_decode(descriptor.path_or_inline)[: descriptor.size_in_bytes]
        return _checked(deserialize(data), descriptor)
    start = descriptor.offset or 0
    size_and_data = content[start : start + 4 + descriptor.size_in_bytes + 4]
    if len(size_and_data) < descriptor.size_in_bytes + 8:
        raise BadVector(f"deletion vector {descriptor.unique_id} ends before its {start} + size")
    data = size_and_data[4:-4]
    if struct.unpack(">I", size_and_data[-4:])[0] != zlib.crc32(data):
        raise BadVector(f"deletion vector {descriptor.unique_id} does not match its checksum")
    return _checked(deserialize(data), descriptor)


def _checked(vector: BitMap64, descriptor: DeletionVectorDescriptor) -> BitMap64:
    if len(vector) != descriptor.cardinality:
        raise BadVector(
            f"deletion vector {descriptor.unique_id} holds {len(vector)} rows,"
            f" the log says {descriptor.cardinality}"
        )
    return vector


def file_of(descriptor: DeletionVectorDescriptor) -> str | None:
    """The vector's file: a path in the table's folder or an absolute URI; None for an inline one.
    Raises BadVector."""
    text = descriptor.path_or_inline
    if descriptor.storage_type == "p":
        return text
    if descriptor.storage_type == "i":
        return None
    if descriptor.storage_type != "u" or len(text) < UUID_TEXT_LENGTH:
        raise BadVector(f"a deletion vector is stored as {descriptor.unique_id!r}: not known")
    prefix, encoded = text[:-UUID_TEXT_LENGTH], text[-UUID_TEXT_LENGTH:]
    path = vector_path(uuid.UUID(bytes=z85_decode(encoded)))
    return f"{prefix}/{path}" if prefix else path


def vector_path(name: uuid.UUID) -> str:
    return f"deletion_vector_{name}.bin"


def z85_encode(data: bytes) -> str:
    """ZeroMQ's base 85. ``data`` is padded with zero bytes to a multiple of four."""
    padded = data + bytes(-len(data) % 4)
    return base64.b85encode(padded).decode("ascii").translate(_TO_Z85)


def z85_decode(text: str) -> bytes:
    try:
        return base64.b85decode(text.translate(_FROM_Z85))
    except ValueError as error:
        raise BadVector(f"{text!r} in a deletion vector is no base 85: {error}") from error
