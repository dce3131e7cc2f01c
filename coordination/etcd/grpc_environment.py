"""Set what gRPC reads from the environment while it is imported: import this before `grpc`.

It turns gRPC's fork handlers off. Starting a JVM forks; with the handlers every such fork prints a
line to stderr, and gRPC's poller may fail in the child. The child only executes another program, so
it does not need them.
"""

from __future__ import annotations

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
