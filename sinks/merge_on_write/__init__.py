"""The merge-on-write engine (docs/merge-on-write.md): our own commits to a Delta table.

lifecycle/, alter/, upkeep/                  made and renamed; DDLs; work between commits
engine, row_history, counted_rows ── table_handle  one write: find rows, write a file, mark, commit
version_reader                               one version, without Spark
files/ ── log/                               Parquet and keys; the log
"""
