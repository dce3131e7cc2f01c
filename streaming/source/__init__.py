"""What is read, and how far.

positions                      a part of a source, and a position in it
kafka/                         Kafka: asked by the driver, read by Spark's executors
body_files, worker_daemon      blocks pass by the JVM; a worker's imports, made once
"""
