"""A DDL on a target: one commit that changes its metadata, and its rows where it must.

ddl_commit ─┬─ table_ddl                           what is to be done, a class for each kind
            ├─ new_metadata                        columns, types, key
            ├─ rewrite, partition_rows, ended_rows    rows written anew, taken out, ended
            └─ dropped_rows, duplicate_keys, duplicate_rows
"""
