"""DDLs of the stream, decided: pure.

unplanned                   what was read, until it is planned
plan ── steps, refusal      what may run, what it does to a table, what an operator reads
"""
