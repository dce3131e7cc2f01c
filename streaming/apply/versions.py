"""The changes of a history as versions: until when each is valid, as far as the batch tells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from sinks.merge_on_write.files.data_files import one_array
from sinks.target.write_mode import (
    HISTORY_COLUMNS,
    IS_CURRENT,
    VALID_FROM,
    VALID_FROM_TS,
    VALID_TO,
    VALID_TO_TS,
    moment_us,
)
from sinks.types.delta_types import arrow_of
from sinks.types.key_hash import keys_of


def versions(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The same rows, one for each key and VALID_FROM_TS, with the other columns of a history. A
    version ends where the next change of its key comes; a DELETE is only such an end."""
    if not rows.num_rows:
        return rows
    begins = rows[VALID_FROM_TS].to_numpy()
    keys = keys_of([one_array(rows[name], rows[name].type) for name in key])
    words = [keys.first] if keys.second is None else [keys.first, keys.second]
    order = np.lexsort((begins, *words))
    is_next = np.ones(len(order) - 1, np.bool_)  # the same key as the row before
    for word in words:
        is_next &= word[order[1:]] == word[order[:-1]]
    ends = np.zeros(len(order), np.int64)
    ends[order[:-1][is_next]] = begins[order[1:][is_next]]
    is_open = ends == 0
    found = {
        VALID_FROM: pa.array(moment_us(begins)),
        VALID_TO: pa.array(moment_us(ends), mask=is_open),
        IS_CURRENT: pa.array(is_open),
        VALID_TO_TS: pa.array(ends, mask=is_open),
    }
    for name, values in found.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, name, values.cast(arrow_of(HISTORY_COLUMNS[name])))
    return rows
