"""What the bytes of a binlog mean: pure functions on NumPy and Arrow, without I/O.

packets                                     framed bytes of the socket ─► where events begin
events, control/                            headers and checksums; GTIDs, statements, files
blocks ── row_events ── maps_in_force       a slice ─► its row events by table
inflate                                     compressed events ─► ordinary ones
block_body ── cells/                        row images ─► Arrow columns ─► a block's body
"""
