"""The MERGE engine: Spark writes tables that merge-on-write refuses.

merge_engine ── session_settings      what Delta and the engine need in a session
jvm_errors                            Spark's errors as one line
"""
