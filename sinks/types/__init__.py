"""A MySQL table as a value, its cells as Arrow, its types as Delta's, its keys as numbers.

mysql_type ── table_schema ── delta_types, partitioning, type_changes
cells ── casts ── time_zones, text_arrays ──► Arrow
keys ── key_hash ── last_per_key ──► numbers
"""
