"""A recording: the messages of topics in a file, one a line, as `tidelake record` makes it.

source ── reader ► lines_task       the contract; a read: lines, cut for tasks
file                                where each line begins, and of which part it is
"""
