"""Which capture writes which table (TiCDC's table scheduling).

coordinator ─┬─ schedulers ──► replication_manager ── replication_set      the owner's side
             └─ capture_manager, reports, barrier
messages                                                                   between the two
agent ── replica                                                           a capture's side
"""
