"""One capture's part of one changefeed: what it reads, what it writes, and what it does as owner.

    plane ─┬─ replica ──────── span_writer ── newcomers, span_permit     writes the spans that
           │                                                             held_spans lists
           ├─ control_writer ─ owners_reader, control_rows ── progress_rows    the owner's work
           │                   ddl_run ── part_mapper, part_task
           └─ standing           writes the state of changefeeds that no owner runs

    topic_stream ── stream_run ── query, reads     one reading for all roles (stream_role)

Replica and control writer are each built from a `role_context`. In the stream their roles are the
span writer and the owner's reader. `changefeed_settings` translates a changefeed from etcd."""
