"""Changefeeds, their owners and their progress as records in etcd: what they are, and who writes.

model               the records, each one JSON
feed_state          which state a changefeed is in, and what moves it: the owner's decisions
changefeed_writes   every write of them, as groups of patches (`record_patch`) that refuse what is
                    of another life of the changefeed, or of another launch of its owner
changefeed_state    one changefeed as etcd has it, and what a tick wants written
global_state        all of them, with the captures: the state of a capture's reactors
lookup, operator    the same without a reactor: read now, write now
"""
