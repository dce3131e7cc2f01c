"""What a changefeed file and a server file may hold.

reading ──► models (pydantic) ── keys, event_types      refusals: what is wrong, one line a key
"""
