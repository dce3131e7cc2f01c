import os

# As the program has it: Rust libraries read it once, when a test first imports them.
os.environ.setdefault("RUST_LOG", "error")
