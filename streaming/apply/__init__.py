"""From blocks of rows to commits, table by table.

carry, row_block ─► rows_to_apply ─► changes ─┬─ last_change, typed_rows ─► applier ─► engine
                           change_log ────────┴─ row_errors ─► dead_letter_writer
table_task, commit_guard      a table's part of a batch; asked right before each commit
newest_whole_row              tells the columns of a table whose CREATE TABLE was not read
"""
