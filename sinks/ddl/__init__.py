"""A DDL of the stream: from its text to effects, and from effects to a table's next schema.

text ── tokens ── alter_table, definitions, partition_clauses ── statements ──► effects
effects ── classify                                  makes a table, changes one, or nothing
effects ── evolve, defaults, handle_key ──► schema   column_origin, past_schemas: its rows
"""
