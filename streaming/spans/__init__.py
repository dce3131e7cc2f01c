"""A capture's tables (the scheduler's *spans*): join, write, give back.

replica ─┬─ assigned_spans ── joining_spans      which are ours, in which state
         └─ span_writer ── span_guard            writes what is due; asked before each commit
log_lines
"""
