"""maxwell: the JSON of Maxwell's daemon, and what TiCDC writes in its manner."""
