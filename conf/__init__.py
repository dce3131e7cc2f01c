"""Settings: from files, arguments and the environment to values.

load ── changefeed_file, sink_uri, source_uri ── kafka_uri, recording_uri ──► settings
setting_keys, secret_references, masking, problems, forms
"""
