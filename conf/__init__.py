"""Settings: from files, arguments and the environment to values.

load ── files/, sink_uri, source_uri ── kafka_uri, recording_uri ──► settings
secret_references, masking, problems, forms
"""
