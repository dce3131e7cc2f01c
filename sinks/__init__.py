"""Delta: the control tables under ``_tidelake``, and the target tables.

control_table, _schema, _upkeep   a small table whose every commit is a compare-and-set
txn                               who may write a changefeed's rows: its term
changefeeds, progress, snapshots, schemas, dead_letters   the five control tables
ddl/, type_changes, schema        what a DDL does to a table and its values; MySQL definitions
column_origin, older_shapes       rows of before a DDL in the columns of after it
delta_types, casts, casts_*, text_arrays, time_zones   from canal-json's text to Delta's types
tables, creation, altered_by_hand target tables: inspect, seal, create; columns altered by hand
apply, engine_choice              what a commit engine promises, and which one writes a table
merge_on_write/, spark_engine     the two engines
"""
