"""What the messages of any protocol come to: events (``parsed_message``), rows of one table and
shape as Arrow (``row_arrays``), and their blocks (``blocks``)."""
