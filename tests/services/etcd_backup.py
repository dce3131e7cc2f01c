"""An etcd's backup, and the way back to it: as etcd's own documentation has operators do it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from coordination.etcd.embedded import EmbeddedEtcd, find_binary


def save(etcd: EmbeddedEtcd, backup: Path) -> None:
    """`etcdctl snapshot save`."""
    _run("etcdctl", f"--endpoints={etcd.endpoint}", "snapshot", "save", str(backup))


def restore(etcd: EmbeddedEtcd, backup: Path) -> None:
    """End it, `etcdutl snapshot restore` into a new data folder, and start it again there."""
    folder = etcd._folder
    assert folder is not None
    flags = [each for each in etcd._arguments(folder) if each.startswith(RESTORED_WITH)]
    etcd.kill()
    shutil.rmtree(folder / "data")
    _run("etcdutl", "snapshot", "restore", str(backup), *flags)
    etcd.start()


RESTORED_WITH = ("--name", "--data-dir", "--initial-cluster", "--initial-advertise-peer-urls")


def _run(program: str, *arguments: str) -> None:
    command = [str(find_binary().with_name(program)), *arguments]
    environment = {**os.environ, "ETCDCTL_API": "3"}
    subprocess.run(command, check=True, capture_output=True, env=environment, timeout=60)
