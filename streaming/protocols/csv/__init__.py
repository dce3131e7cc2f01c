"""csv, as TiCDC's storage sink writes it: rows of a file, many at once.

decoder ─┬─ plain_rows                Arrow's own reader, where nothing is unusual
         └─ cells ── fields           bytes ─► places of rows and fields ─► columns ─► blocks
table_head                           what a row lacks to be decoded: the columns, and the format
"""
