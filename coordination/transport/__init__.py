"""Messages between captures, and operators' calls to the owner.

transport ◄── grpc_transport ── grpc_calls      a batch of messages as bytes; over gRPC
                   └── peer_tls                 certificates that both sides must accept
"""
