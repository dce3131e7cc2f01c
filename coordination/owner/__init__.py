"""What the elected capture does: it owns every changefeed.

owner        all of them, tick by tick, and what the dead have left
changefeed   one of them: launched, run, stopped, let go
term         one run of it: what is to be told to the captures, and recorded in Delta
sync_point   the timestamps at which all its tables stop for a snapshot
jobs         what operators ask for
"""
