"""canal-json: messages to blocks.

decoder ── message_heads ─┬─ row_template ── quote_scanner ── row_arrays  plain rows, at once
                          └─ strict_parser ── parsed_message              the others, one by one
blocks                                                                    gathers both
"""
