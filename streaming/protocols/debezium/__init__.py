"""Debezium's JSON, as TiCDC writes it and as Debezium's own MySQL and MariaDB connectors do:
messages to blocks.

decoder ─┬─ plain_rows ─┬─ frames                   what is around the rows: schemas, above all
         │              └─ row_template ─┬─ sample        rows like one of them, side by side
         │                               └─ cell_readers  their cells, by the names of schemas
         └─ strict_parser ─┬─ envelope              the others, one by one
                           └─ columns
../rows                                             gathers both
"""
