"""Source URIs: the scheme says what is read.

source_uri ── kafka_uri, recording_uri, binlog_uri ── source_parameters, kafka_security
"""
