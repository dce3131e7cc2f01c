"""Changefeeds, their owners and their progress as records in etcd, and all writes of them.

records ── feed_state ──► changefeed_writes      what is stored, what may happen, who writes it
changefeed_state, global_state                   what a tick sees, and wants written
lookup, changefeed_operator                      read and write at once: for the command line
"""
