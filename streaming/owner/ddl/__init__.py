"""DDLs of the stream, decided: pure.

plan ── steps, refusal      what may run, what it does to a table, what an operator reads
"""
