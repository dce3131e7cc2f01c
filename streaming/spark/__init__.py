"""Spark's JVM and session. It knows nothing of changefeeds.

jvm ── session ── spark_conf ── ticking_query      our child; one session; batches that call us
jvm_watch                                          does it answer, do its jobs go on
python_worker, light_imports, class_archive      workers, and a quick start
"""
