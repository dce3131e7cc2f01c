"""What the bytes of a binlog mean: pure functions on NumPy and Arrow, without I/O.

packets                                     framed bytes of the socket ─► where events begin
events, control_events, transactions        headers; GTIDs, statements, files; transactions
blocks ── row_events ── table_map, cells/   a slice ─► blocks of rows
"""
