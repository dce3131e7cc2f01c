"""One running process.

launch ─┬─ run ── run_capture       `tidelake run`: one changefeed
        └─ server                   `tidelake server`: a capture among others
data_plane                          implements coordination's port for both
signals, logs, masked_arguments
"""
