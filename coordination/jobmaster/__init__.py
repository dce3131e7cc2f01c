"""DM's job master: drives the tasks of a job through dump, load and sync, on the captures of a
cluster (docs/cluster.md 21).

job_masters     the reactor of the elected capture: a master for each job
job_master      one job: reports in, writes and messages out
worker_manager  which worker each task needs: a unit on a capture
task_manager    expected stages beside reported ones
executor        the other side: the workers of one capture
"""
