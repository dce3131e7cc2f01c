"""simple: messages to blocks.

decoder ─┬─ ../json_text/heads ─┬─ row_template ── ../json_text/quote_scanner  plain rows
         │                      └─ strict_parser ── told_schema          the others, one by one
         └─ avro_decoder ── avro_heads ─┬─ avro_rows ── avro_maps ── ../avro_binary/byte_walk
                                        └─ avro_reader ── ../avro_binary/datum_reader
../rows                                                                  gathers all
"""
