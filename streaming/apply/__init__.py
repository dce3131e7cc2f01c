"""From blocks of rows to commits, table by table.

carry, row_block, joining   keep rows that are read and not applied yet
shape                       columns and key of a table whose CREATE TABLE was not read
due_rows ► typed_rows ► last_change ► changes   make one typed change per key, or row_errors
applier, table_task         bring tables to a limit; dead_letter_writer: what cannot be applied
"""
