"""Tables with which a changefeed does not go on, and why."""
