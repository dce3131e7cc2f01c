"""canal-json with the TiDB extension.

decoder           messages in, blocks out; collect and rows make the blocks
heads             which table messages are of, by how they begin
template, tails   the plain rows of a table, many at a time
message, events   any message, one by one, and what it means
"""

from streaming.protocols.canal_json.decoder import decode as decode
