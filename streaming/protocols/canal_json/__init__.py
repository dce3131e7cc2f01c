"""canal-json: messages to blocks.

decoder ── message_heads ─┬─ row_template ── ../json_text/quote_scanner  plain rows, at once
                          └─ strict_parser ── ../json_text/strict_json   the others, one by one
../rows                                                                  gathers both
"""
