"""simple, in JSON: messages to blocks.

decoder ── ../json_text/heads ─┬─ row_template ── ../json_text/quote_scanner  plain rows, at once
                               └─ strict_parser ── told_schema                the others, one by one
../rows                                                                       gathers both
"""
