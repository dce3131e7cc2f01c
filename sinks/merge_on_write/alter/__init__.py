"""A DDL on a target: one commit that changes its metadata, and its rows where it must.

ddl_commit ─┬─ new_metadata                        columns, types, key
            ├─ rewrite, partition_rows, ended_rows    rows written anew, taken out, ended
            └─ dropped_rows, duplicate_keys, duplicate_rows
"""
