"""The merge-on-write engine (docs/merge-on-write.md): our own commits to a Delta table.

engine          one write: find the rows of its keys, write a file, mark deleted rows, commit
alter, new_shape, kept                     a DDL in one commit; the rows of a dropped table
parts, rewrite, double_keys                rows written anew by it
open_table      a table that is being written: follows its log, finds the rows of keys
storage, object_storage, located           files, local or on an object store
log_paths, log_reader, checkpoint_reader, log_state, actions, forgotten   reading a table's log
commit, checkpoint, pause                  writing to the log
table_shape, statistics, data_files, sorted_files, file_rows, deletion_vector   data files
key_hash, key_index, key_bounds            where the rows of a key are
upkeep, folding, fold, retention, intervals   work between commits
"""
