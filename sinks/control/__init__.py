"""The tables under ``_tidelake``: changefeeds, progress, schemas, snapshots, dead letters, DDLs.

    warehouse ── a file for each table ── control_table ── columns, terms, upkeep

A file that is about one of these tables has the table's name.
"""
