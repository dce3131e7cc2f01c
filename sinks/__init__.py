"""Delta: the control tables under ``_tidelake``, and the target tables.

merge_on_write, spark ── target ── types ── storage     two engines write a target table
control                                                  the tables under _tidelake
ddl                                                      what a DDL makes of a table's schema
"""
