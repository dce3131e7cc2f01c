"""What changefeed and task files say about rows: conditions on values."""
