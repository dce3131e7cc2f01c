"""From Kafka to Delta: the processes and what they do (docs/architecture.md has every arrow).

job ── cli ── process ─┬─ spans ─┐                      the command line; one running process
                       └─ owner ─┴─ stream ── source    rows and DDLs, over one reading
operations ── changefeed ── apply ── protocols          what is asked; settings; rows to commits
"""
