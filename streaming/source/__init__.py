"""Kafka: the driver asks for metadata and offsets, Spark's executors read the messages.

kafka, refusal, librdkafka_settings   ask the broker; why it refuses us; how to connect
ranges                                which offsets are read next, and in which task
range_reader ► read_task ► reading ► consumer   a read: job, task, ranges, librdkafka
message_reader                        read a few messages without Spark
worker_daemon                         Spark's Python daemon, with all of this imported
"""
