"""What a target table is, and what a commit engine promises.

target_table ── table_properties, retention_properties      found, sealed, refused
engine_port ── write_mode                                    what is written, and by which rules
engine_choice, altered_by_hand                               who writes it; what users changed
"""
