"""A folder that TiCDC's storage sink writes, as a source.

source ── reader ► slices_task          the contract; a read: slices of files, by several tasks
survey ► part_log                       which files there are, looked at again and again
schema_files, layout                    what a schema file says; what the names of files say
"""
