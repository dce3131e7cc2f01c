"""One capture's part of one changefeed: what it reads, writes, and does as its owner.

    plane ─┬─ replica ──────── span_writer ── newcomers, span_permit     this capture's spans, as
           │                                                             held_spans has them
           ├─ control_writer ─ owners_reader, control_rows ── progress_rows    the owner's work
           └─ standing                                      of changefeeds that nobody runs

    topic_stream ── stream_run ── query, reads     one reading for all roles (stream_role)

A role works with a `role_context`. What etcd says of a changefeed: `changefeed_settings`."""
