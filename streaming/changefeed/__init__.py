"""What a changefeed is: its settings, its filter, its tables.

admission, preflight                    before a start
settings_in_etcd, filter, earlier_filters
table_registry ── replicated_table      every table, and how far it is
    └── schema_file, schema_from_rows, refused_tables
"""
