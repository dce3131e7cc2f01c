"""Tables come and go: made, renamed, recovered, exchanged.

create                                                   one commit
rename, recover, exchange_partition ── shallow_clone     one log takes in another log's files
"""
