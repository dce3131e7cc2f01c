"""The binlog of MySQL and MariaDB: one part, read in order; decoded here or by executors.

source ── database                                       the contract, and questions in SQL
reader ► log_tail ► dump                                 a read: whole transactions
log_walk                                                 positions, commit-ts, what is resolved
slice_task, format/                                      events ─► blocks; statement_effect: DDLs
"""
