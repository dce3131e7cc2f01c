"""The owner's work for one changefeed: its term, its DDLs, its control rows.

control_writer ─┬─ start_point                     claim the term, decide where to begin
                ├─ ddl_reader ── ddl/              which DDLs come, and what may run
                ├─ ddl_run ── rewrite_on_spark, rewrite_task, blocked_tables
                └─ control_rows ── progress_rows, shown_state
"""
