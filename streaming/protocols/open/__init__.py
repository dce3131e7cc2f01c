"""open-protocol: batches of events to blocks.

frames ── keys of events ─┬─ row_template ── encoded_cells   plain rows of a table, at once
                          └─ strict_parser ── columns        the others, one by one
../rows                                                      gathers both
"""
