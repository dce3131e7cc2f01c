"""What is read, and how far.

contract, positions            what a source must do; a part of it, and a position there
sources                        opens one, by its settings
watermarks                     W, the least over the parts
kafka/                         Kafka: asked by the driver, read by Spark's executors
body_files, worker_daemon      blocks pass by the JVM; a worker's imports, made once
"""
