"""From blocks of rows to commits, table by table.

carry, row_block, joining   rows that are read and not applied yet
shape                       what rows tell of a table whose CREATE TABLE was not read
due_rows ► typed_rows ► last_change ► changes   one typed change per key, and row_errors
applier, table_task         tables brought to a limit; dead_letter_writer: what cannot be applied
"""
