"""Tables that hold rows already: copied, settled, and loaded before a changefeed begins."""
