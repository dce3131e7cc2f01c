"""Which partition TiCDC's ``index-value`` dispatcher gives a row."""

from __future__ import annotations

from zlib import crc32

from tests.shop.canal_json import Change, Table, value_text

DDL_PARTITION = 0


def partition_of(change: Change, partitions: int) -> int:
    """By the handle key; all rows of a table without one share a partition."""
    table = change.table
    position = _hash(table.schema.encode(), table.name.encode())
    for name in table.handle_key:
        position ^= _hash(name.encode(), _key_bytes(table, name, change.row[name]))
    return position % partitions


def _key_bytes(table: Table, name: str, value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    text = value_text(value, table.by_name[name])
    return b"null" if text is None else text.encode()


def _hash(*parts: bytes) -> int:
    return crc32(b"".join(parts))
