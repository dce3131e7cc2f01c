"""A DDL of the stream: from its text to effects, and from effects to a table's next schema.

effects       what a statement does, as data
statements    from a statement to its effects
alter, definitions, words     the readers: parts of an ALTER TABLE, columns and indexes, words
evolve        a table's schema after an ALTER TABLE; defaults: what old rows then show
keys          which index is the handle key
classify      whether a statement makes a table, changes nothing, or changes a target
"""
