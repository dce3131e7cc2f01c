"""Runs a reactor on etcd (TiCDC's EtcdWorker): the reactor sees etcd as it was at one moment, and
its changes become transactions. What the values mean is not known here.

transaction   patches: changes of keys, in groups; how many groups make one transaction
snapshot      the keys that were seen, and the transactions that may be built on them
etcd_worker   the loop: read, watch, tick, commit, and what to do when etcd gives no answer
commit_once   a write without a loop, by the same rules
"""
