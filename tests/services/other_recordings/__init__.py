"""Makes of a recording (`tests/data/wire`) another one that is as true: with other names, values,
zones, orders and formats, and the truth beside it.

Without a change each is the recording again, byte for byte: so these encoders are TiCDC's.
"""
