"""A capture from one reset to the next, and its two roles.

server ── capture ─┬─ processor            every capture: its spans of each changefeed
                   └─ leadership ─ owner/  one of them: all changefeeds, their terms and DDLs
run_admission, reset_limit, context        who may run; when to give up; what both roles share
"""
