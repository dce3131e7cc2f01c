"""``_delta_log``: read, followed, and written by put-if-absent.

reader, checkpoint_reader ──► state ── tombstones      files, identities, protocol, metadata
commit, checkpoint_writer, pause ──► the log           each commit once, or not at all
actions, file_locations, physical_schema, deletion_vector, paths      what stands in it
"""
