"""Kafka: metadata and offsets from the driver, messages through Spark's executors.

kafka, refusal, librdkafka_settings   the broker asked; why it lets nobody in; how to connect
ranges                                which offsets are read next, and in which task
range_reader ► read_task ► reading ► consumer   a read: job, task, ranges, librdkafka
message_reader                        a few messages without Spark
worker_daemon                         Spark's Python daemon with all that loaded
"""
