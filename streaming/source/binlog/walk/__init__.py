"""The way through the log: where each event lies, its transaction, and the commit-ts of that."""
