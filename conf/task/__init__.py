"""A task file of DM: what it may hold, and the changefeed that it describes."""
