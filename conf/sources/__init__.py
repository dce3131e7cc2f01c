"""Source URIs: the scheme says what is read.

source_uri ─┬─ kafka_uri, recording_uri ──────────────── source_parameters, kafka_security
            └─ binlog_uri, tidb_uri ── database_server ── source_parameters
"""
