"""What gRPC reads from the environment while it is imported: import this before `grpc`.

Starting a JVM forks. gRPC's fork handlers then print a line to stderr for every such fork, and its
poller may fail in the child; the child only executes another program, so they are of no use here.
"""

from __future__ import annotations

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
