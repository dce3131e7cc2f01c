"""The events that are no rows: names and ends of transactions, statements, files."""
