"""What can be asked and ordered, as values: the command line stands on this.

cluster, ddl                        etcd, and the owner by gRPC
progress_report, snapshots          the control tables, without a JVM
"""
