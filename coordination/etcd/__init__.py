"""etcd: a port, its client, and what stands on it.

client ◄── etcd3_client ── watch_stream ── whole_revisions      grpc_environment, endpoints
session, election, keys                                         a lease, an owner, every key
embedded                                                        an etcd of our own
"""
