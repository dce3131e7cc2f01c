"""What the elected capture does: it owns every changefeed.

owner        all changefeeds, tick by tick, and the changefeeds that dead captures owned
changefeed   one changefeed: launched, run, stopped, released
term         one run of a changefeed: what to send to the captures, and to record in Delta
sync_point   the timestamps at which all tables of a changefeed stop for a snapshot
jobs         requests of operators
"""
