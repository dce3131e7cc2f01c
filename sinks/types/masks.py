"""A source's cells as the values that the target has: cast, and masked where the column is.

A mask of ``sha256`` is the hash of a value's text in MySQL, behind the salt: what
``SHA2(CONCAT(salt, value), 256)`` gives there, with a TIMESTAMP's text in UTC. Equal values of any
type have one hash, if they have one text: so joins go on working. NULL stays NULL.

A number's text is plain here: no exponent, no zeros before it; that of a BIT is its number.
Where no definition tells the digits of a DATETIME's fraction, its text does, in protocols of texts;
else there are six.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from sinks.types.casts.columns import cast_column
from sinks.types.casts.typed_cells import is_text
from sinks.types.delta_types import arrow_type
from sinks.types.mysql_type import MySQLType
from sinks.types.table_schema import Column
from sinks.types.text_arrays import CastColumn, CastRules
from sinks.types.type_changes import text_of

HIDDEN = "***"  # in the place of a masked value, wherever one is shown


def target_values(
    cells: pa.Array,
    column: Column,
    rules: CastRules,
    *,
    are_typed: bool = False,
    are_names: bool = False,
) -> CastColumn:
    """As ``cast_column``, in ``arrow_type(column.stored)``."""
    if column.mask == "null":
        return CastColumn(values=pa.nulls(len(cells), arrow_type(column.stored)), failed=None)
    found = cast_column(cells, column, rules, are_typed=are_typed, are_names=are_names)
    if not column.mask:
        return found
    is_untold = column.type.digits is None and pa.types.is_timestamp(found.values.type)
    if is_untold and is_text(cells.type):
        values = _hashed_as_long(found.values, cells, rules.mask_salt)
        return replace(found, values=values)
    return replace(found, values=hashed(found.values, column.type, rules.mask_salt))


def hashed(values: pa.Array, of: MySQLType, salt: bytes) -> pa.Array:
    """Each different value is hashed once."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us"))
        of = of if of.digits is not None else MySQLType.parse("datetime(6)")
    if pa.types.is_list(values.type):
        texts = [None if each is None else str(each) for each in values.to_pylist()]
        values = pa.array(texts, pa.string())
    encoded = values.dictionary_encode()
    sha256 = hashlib.sha256
    found = [
        None if each is None else sha256(salt + each).hexdigest()
        for each in _texts(encoded.dictionary, of)
    ]
    return pa.array(found, pa.string()).take(encoded.indices)


def _hashed_as_long(values: pa.Array, texts: pa.Array, salt: bytes) -> pa.Array:
    """The hashes of moments of which the texts alone tell how many digits their fractions have."""
    behind = pc.struct_field(pc.extract_regex(texts, r"\.(?P<digits>[0-9]{1,6})$"), "digits")
    digits = pc.fill_null(pc.utf8_length(behind), 0)
    found = pa.nulls(len(values), pa.string())
    for each in pc.unique(digits).to_pylist():
        some = hashed(values, MySQLType.parse(f"datetime({each})"), salt)
        found = pc.if_else(pc.equal(digits, each), some, found)
    return found


def _texts(values: pa.Array, of: MySQLType) -> list[bytes | None]:
    """The bytes of each value's text."""
    if pa.types.is_integer(values.type) and of.name != "year":
        values = values.cast(pa.string())
    if not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
        return [None if each is None else text_of(each, of).encode() for each in values.to_pylist()]
    texts: list[bytes | None] = values.cast(pa.binary()).to_pylist()
    return texts
