"""Kafka: the driver asks for metadata and offsets, Spark's executors read the messages.

source ── retention, strays                              the contract, on what follows
broker ── connection_errors, librdkafka_settings, deleted_messages      ask; why it refuses
offset_ranges                                            which offsets are read next, and where
spark_reader ► read_task ► read_ranges ► consumer        a read: job, task, ranges, librdkafka
message_bytes                                            single messages again, without Spark
"""
