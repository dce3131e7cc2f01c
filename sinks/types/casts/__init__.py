"""A source's cells as Delta's values.

texts ──────────► columns ── dates, numbers, texts ──► Arrow
typed cells ──┬─────┘                                    ▲
              └─ typed_cells ────────────────────────────┘
"""
