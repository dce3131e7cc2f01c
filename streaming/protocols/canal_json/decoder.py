"""canal-json with the TiDB extension, decoded in Arrow: messages in, blocks out.

Each message takes one of three ways. Rows of a wanted table that are written as TiCDC writes them
are read many at a time (``row_template.py``). Rows of other tables are counted by their head and
their end alone. Everything else, and whatever does not turn out to be plain, is read one by one
(``strict_parser.py``), which says what a message means.
"""

from __future__ import annotations

from collections.abc import Iterator

from streaming.protocols.canal_json.flat_decoder import decode as decode_flat
from streaming.protocols.canal_json.plain_rows import read_plain
from streaming.protocols.canal_json.strict_parser import read
from streaming.protocols.contract import Block, Messages, Wanted
from streaming.protocols.json_text.plain_text import some
from streaming.protocols.rows.blocks import Collector, with_clocks


def decode(messages: Messages, wanted: Wanted, *, start_ts: int = 0) -> Iterator[Block]:
    """Blocks of a chunk by their first position; rows at or below a table's ``above_ts`` are in
    none. A watermark block ends (``last``) where its greatest watermark stands last. ``start_ts``:
    where an operator had the changefeed begin, which is as good a clock as the messages'."""
    if messages.commit_ts is not None:
        return decode_flat(messages, wanted, start_ts=start_ts)
    if not len(messages):
        return iter(())
    messages = with_clocks(messages, start_ts)
    values = messages.values
    collector = Collector(messages, wanted)
    at = read_plain(values, collector)
    each = (read(value.as_py()) for value in some(values, at))
    collector.keep_each(at, each)
    return collector.blocks()
