"""Which capture writes which table (TiCDC's table scheduling).

coordinator ─┬─ schedulers ──► replication_manager ─► span_columns ─► replication_set  the owner's
             └─ capture_manager, reports, barrier
messages ── table_status                                                           between the two
agent ── replica                                                                   a capture's
"""
