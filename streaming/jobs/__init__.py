"""Where tasks run: Spark's executors. It knows nothing of sources and changefeeds.

port ── on_spark        jobs, a streaming query that calls us, the session of one stream
    │                   (executors: one that lacks a package)
    └── on_threads      the same for tests, in one process; the product never chooses it
"""
