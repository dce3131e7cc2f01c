"""JSON as protocols have it: many texts walked through side by side (``quote_scanner``), or one by
Python's own parser (``strict_json``)."""
