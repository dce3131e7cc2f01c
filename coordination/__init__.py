"""The control plane: who owns a changefeed, who writes which table, and up to where.

capture ─┬─ scheduler ── transport          which capture writes which table
         └─ metadata ── orchestrator ── etcd    records, as of one moment
trust                                       how long a capture may believe its session
ports                                       what the data plane must do
"""
