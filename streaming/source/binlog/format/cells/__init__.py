"""The cells of row images as Arrow arrays, column by column.

layout                      how wide each column is, and where the images of an event begin
row_cells ── number_cells, moment_cells, text_cells ── json_text      a column of all images at once
column                      what a TABLE_MAP tells of a column, and its type in MySQL's words
"""
