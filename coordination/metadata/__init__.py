"""Changefeeds, their owners and their progress as records in etcd, and all writes of them.

model               the records, one JSON object each
feed_state          which state a changefeed is in, and what moves it: the owner's decisions
changefeed_writes   every write of the records, as groups of patches (`record_patch`). A group is
                    refused if the changefeed was created anew since, or its owner launched anew
changefeed_state    one changefeed as etcd has it, and what a tick wants written
global_state        all changefeeds and captures: the state that a capture's reactors work on
lookup, operator    read and write at once, without a reactor: for the command line
"""
