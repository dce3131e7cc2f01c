"""avro with a schema registry: messages to blocks.

decoder ─┬─ frames         key and value of many messages, and the ids of their schemas
         ├─ writer_schema  what a schema of TiCDC says of a table
         └─ row_columns    rows of one schema, a field at a time, side by side
../rows                    gathers all
letters                    a row's dead letter has its schemas, and is decoded by itself
"""
