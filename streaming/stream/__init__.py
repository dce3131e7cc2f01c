"""One reading of a changefeed on this capture, shared by its roles.

shared_stream ── stream_run ── reading ► read ► applying    one read after the other, for all roles
idle_time, retry                                        until when
role, role_context                                      what a role is, and is built from
backlog, backlog_watch, retention_watch, lasting_warnings      on threads of their own
"""
