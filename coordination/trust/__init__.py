"""How long a capture may trust its session, and what happens when something hangs.

clock ── deadline ──► fence       no commit after the session may have ended
watchdog, close_deadlines         what stands still, or does not end, ends the process
"""
