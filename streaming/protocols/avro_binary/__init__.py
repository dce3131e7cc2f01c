"""Avro's binary encoding: many messages side by side (`byte_walk`), or one (`datum_reader`)."""
