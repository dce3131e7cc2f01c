"""Settings: from files, arguments and the environment to values.

load ── files/, sink_uri, sources/ ──► settings
secret_references, masking, problems, forms
"""
