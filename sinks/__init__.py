"""Delta: the control tables under ``_tidelake``, and the target tables.

control_table, _schema, _upkeep   a small table whose every commit is a compare-and-set
txn                               who may write a changefeed's rows: its term
changefeeds, progress, snapshots, dead_letters   the four of them
ddl, _words, _create, _alter      what a DDL means; schema: a table's MySQL definition
delta_types, casts, casts_*, text_arrays, time_zones   from canal-json's text to Delta's types
tables, creation, altered_by_hand target tables: looked at, sealed, made, as somebody altered them
apply, engine_choice              what a commit engine promises, and which one writes a table
merge_on_write/, spark_engine     the two
"""
