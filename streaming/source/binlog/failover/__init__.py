"""Going on in the log of another server, by GTID."""
