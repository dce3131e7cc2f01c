"""The merge-on-write engine (docs/merge-on-write.md): our own commits to a Delta table.

engine          one write: find, write, mark, commit
open_table      a table that is being written: its log followed, the rows of keys found
storage, object_storage, located           files, wherever they are
log_paths, log_reader, checkpoint_reader, log_state, actions, forgotten   what a log says
commit, checkpoint, pause                  what is written to it
table_shape, statistics, data_files, sorted_files, file_rows, deletion_vector   data files
key_hash, key_index, key_bounds            where the rows of a key are
upkeep, folding, fold, retention, intervals   between commits
"""
