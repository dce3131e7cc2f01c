"""Settings: from files, arguments and the environment to values.

load ── changefeed_file, source_uri, kafka_security, sink_uri ──► settings
setting_keys, secret_references, masking
"""
