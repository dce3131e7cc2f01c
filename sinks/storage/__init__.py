"""A table's folder: read, list, put if absent.

open_storage ─┬─ local_storage  ─┐
              └─ object_storage ─┴─► table_storage, the port      errors: one sentence each
"""
