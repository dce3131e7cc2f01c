"""Vectors as bytes: the protocol's own examples, every form, and what is broken."""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from pyroaring import BitMap, BitMap64

from sinks.merge_on_write.log import deletion_vector
from sinks.merge_on_write.log.actions import DeletionVectorDescriptor
from sinks.merge_on_write.log.deletion_vector import (
    NATIVE_MAGIC,
    BadVector,
    deserialize,
    file_of,
    read_vector,
    serialize,
    vector_files,
    vector_path,
    z85_decode,
    z85_encode,
)

ROWS: Sequence[Sequence[int]] = (
    [],
    [0],
    [3, 4, 7, 11, 18, 29],
    list(range(1000)),
    list(range(0, 200_000, 3)),
    [0, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**33 + 5],
)


def inline(text: str, size: int, cardinality: int) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(
        storage_type="i",
        path_or_inline=text,
        offset=None,
        size_in_bytes=size,
        cardinality=cardinality,
    )


def test_the_protocols_inline_vector():
    found = read_vector(b"", inline("wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 40, 6))
    assert list(found) == [3, 4, 7, 11, 18, 29]


def test_the_protocols_names_of_files():
    given = DeletionVectorDescriptor(
        storage_type="u",
        path_or_inline="ab^-aqEH.-t@S}K{vb[*k^",
        offset=4,
        size_in_bytes=40,
        cardinality=6,
    )
    name = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert file_of(given) == f"ab/{name}"
    assert file_of(replace(given, path_or_inline=given.path_or_inline[2:])) == name
    absolute = f"s3://mytable/{name}"
    assert file_of(replace(given, storage_type="p", path_or_inline=absolute)) == absolute
    assert file_of(inline("00000", 4, 0)) is None
    assert given.unique_id == "uab^-aqEH.-t@S}K{vb[*k^@4"


@pytest.mark.parametrize(("storage_type", "text"), [("x", "0" * 20), ("u", "0" * 19)])
def test_a_place_that_is_not_known_is_named(storage_type: str, text: str):
    given = replace(inline(text, 4, 0), storage_type=storage_type)
    with pytest.raises(BadVector, match="not known"):
        file_of(given)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (bytes.fromhex("864FD26FB559F75B"), "HelloWorld"),  # ZeroMQ's RFC 32
        (b"", ""),
        (bytes(4), "00000"),
        (b"\xff" * 4, "%nSc0"),
    ],
)
def test_base_85(data: bytes, text: str):
    assert z85_encode(data) == text
    assert z85_decode(text) == data


def test_a_name_is_twenty_characters():
    for _ in range(50):
        name = uuid.uuid4()
        text = z85_encode(name.bytes)
        assert len(text) == 20
        assert uuid.UUID(bytes=z85_decode(text)) == name


@pytest.mark.parametrize("rows", ROWS, ids=len)
def test_every_form_is_read(rows: Sequence[int]):
    vector = BitMap64(rows)
    data = serialize(vector)
    assert deserialize(data) == vector
    forms = [data, native(rows, "<"), native(rows, ">")]
    assert [deserialize(form) for form in forms] == 3 * [vector]
    for form in forms:
        small = inline(z85_encode(form), len(form), len(rows))
        assert read_vector(b"", small) == vector
        body = b"\x01" + b"another" + framed(form)
        stored = replace(small, storage_type="p", path_or_inline="file:///x.bin", offset=8)
        assert read_vector(body, stored) == vector


def native(rows: Sequence[int], order: str = "<") -> bytes:
    """Delta's older form: a bitmap for each upper half, empty ones too."""
    highest = max((row >> 32 for row in rows), default=-1)
    data = struct.pack(f"{order}ii", NATIVE_MAGIC, highest + 1)
    for high in range(highest + 1):
        part = BitMap([row & 0xFFFFFFFF for row in rows if row >> 32 == high]).serialize()
        data += struct.pack(f"{order}i", len(part)) + part
    return data


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))


def test_vectors_of_a_commit_share_files(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(deletion_vector, "MAX_FILE_BYTES", 400)
    dice = np.random.default_rng(1)
    vectors = [BitMap64(dice.integers(0, 10_000, 30).astype(np.uint64)) for _ in range(20)]
    vectors.insert(5, BitMap64(range(0, 100_000, 7)))  # larger than a file may be: one by itself
    found: list[BitMap64] = []
    files = list(vector_files(vectors))
    for name, content, descriptors in files:
        assert content[0] == 1
        assert len(content) <= 400 or len(descriptors) == 1
        for each in descriptors:
            assert file_of(each) == name
            found.append(read_vector(content, each))
    assert found == vectors
    assert len({name for name, _, _ in files}) == len(files) > 2
    assert not list(vector_files([]))


class TestBroken:
    def stored(self) -> tuple[bytes, DeletionVectorDescriptor]:
        ((_, content, (descriptor,)),) = vector_files([BitMap64([1, 5, 9])])
        return content, descriptor

    def test_a_bit_has_turned(self):
        content, descriptor = self.stored()
        for at in range(5, len(content)):
            turned = bytearray(content)
            turned[at] ^= 1
            with pytest.raises(BadVector, match="checksum"):
                read_vector(bytes(turned), descriptor)

    def test_it_is_cut_off(self):
        content, descriptor = self.stored()
        for length in range(len(content)):
            with pytest.raises(BadVector):
                read_vector(content[:length], descriptor)

    def test_the_log_says_another_number_of_rows(self):
        content, descriptor = self.stored()
        with pytest.raises(BadVector, match="holds 3 rows"):
            read_vector(content, replace(descriptor, cardinality=4))

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"abc",
            struct.pack("<i", 7),
            serialize(BitMap64([1, 2, 2**40]))[:-3],
            native([1, 2])[:-3],
            native([1, 2])[:10],
            struct.pack("<ii", NATIVE_MAGIC, 5),
        ],
    )
    def test_bytes_that_are_no_vector(self, data: bytes):
        with pytest.raises(BadVector):
            deserialize(data)

    def test_text_that_is_no_base_85(self):
        with pytest.raises(BadVector):
            read_vector(b"", inline('"""""', 4, 0))


def test_paths_are_flat():
    assert "/" not in vector_path(uuid.uuid4())
