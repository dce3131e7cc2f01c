"""A capture from one reset to the next, and its roles.

server ── capture ─┬─ processor                       every capture: its spans of each changefeed
                   ├─ jobmaster/executor              every capture: its workers of each job
                   └─ leadership ─ leader ─┬─ owner/  one of them: all changefeeds, terms and DDLs
                                           └─ jobmaster/job_masters: all jobs
run_admission, reset_limit, context        who may run; when to give up; what both roles share
"""
