"""What the messages of any protocol come to: events (``parsed_message``), rows of one table and
shape as Arrow (``row_arrays``; many at a time: ``side_by_side``), and their blocks (``blocks``)."""
