"""The owner of all changefeeds: which run, from where, and up to where they may go.

owner ── changefeed_owner ── term ── sync_point      one changefeed; its term; its snapshots
   └──── operator_jobs                               what operators have asked for
"""
