"""Services that all of xdist's workers share: each starts once a run, when a test asks for it.

    worker ──a name, by a Unix socket──► the process that started the workers ──► the service
      ◄──────── a copy of it ────────

That process lives as long as the run, whatever becomes of a worker; without xdist it is the one
that runs the tests. Services end with it, killed or not (`child_process`). A copy has addresses,
and does all that a client does; it cannot end or restart the service, which others use.
"""

from __future__ import annotations

import io
import pickle
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, Protocol

END_PATIENCE_S = 30.0
_LOCK = type(threading.Lock())


class ServiceGone(Exception):
    """It did not start, or has ended; in one sentence, with the end of its log."""


@dataclass(frozen=True)
class Kind:
    """``log_tail``: of a running one."""

    make: Callable[[], AbstractContextManager[Any]]
    log_tail: Callable[[Any], str] = lambda _service: ""


class Services(Protocol):
    def ask(self, name: str) -> Any:
        """A copy of the service; starts it where nobody has. Raises ServiceGone."""

    def ended(self, name: str) -> str | None:
        """Why a service that was there is not there any more."""

    def close(self) -> None: ...


class OwnersOnly:
    """In a copy: what only the service's owner has, such as its process."""

    def __init__(self, pid: int | None) -> None:
        self.pid = pid

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise TypeError("all tests of the run use this service: one that breaks it starts its own")


class _Copier(pickle.Pickler):
    def __init__(self, into: io.BytesIO) -> None:
        super().__init__(into)
        self.processes: list[subprocess.Popen[Any]] = []

    def reducer_override(self, found: Any) -> Any:
        if isinstance(found, subprocess.Popen):
            self.processes.append(found)
        elif not isinstance(found, (_LOCK, tempfile.TemporaryDirectory)):
            return NotImplemented
        return OwnersOnly, (getattr(found, "pid", None),)


@dataclass(frozen=True)
class _Running:
    copy: bytes
    process: subprocess.Popen[Any]
    log_tail: Callable[[], str]


class _Kept:
    """A service on a thread that starts it, stays, and ends it."""

    def __init__(self, name: str, kind: Kind) -> None:
        self._name, self._kind = name, kind
        self._started: Future[_Running] = Future()
        self._is_over = threading.Event()
        self._looked = threading.Lock()
        self._thread = threading.Thread(target=self._live, name=f"run's {name}", daemon=True)
        self._thread.start()

    def copy(self) -> bytes:
        """Blocks until it is up."""
        if (why := self.ended()) is not None:
            raise ServiceGone(why)
        return self._started.result().copy

    def ended(self) -> str | None:
        try:
            running = self._started.result()
        except Exception as error:  # noqa: BLE001 - whatever kept it from starting
            return f"the run's {self._name} did not start: {error}"
        with self._looked:
            code = running.process.poll()
        if code is None:
            return None
        lines = running.log_tail().split("\n")
        log = next((f"; its log ends {each!r}" for each in lines[::-1] if each.strip()), "")
        return f"the run's {self._name} (pid {running.process.pid}) has ended with {code}{log}"

    def end(self) -> None:
        self._is_over.set()
        self._thread.join(END_PATIENCE_S)

    def _live(self) -> None:
        try:
            with self._kind.make() as service:
                copier = _Copier(into := io.BytesIO())
                copier.dump(service)
                (process,) = copier.processes
                tail = lambda: self._kind.log_tail(service)  # noqa: E731
                self._started.set_result(_Running(into.getvalue(), process, tail))
                self._is_over.wait()
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)


class OwnedServices:
    """Of this process."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self._kinds = kinds
        self._kept: dict[str, _Kept] = {}
        self._lock = threading.Lock()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._listener: Listener | None = None

    def ask(self, name: str) -> Any:
        return pickle.loads(self._copy(name))

    def ended(self, name: str) -> str | None:
        return kept.ended() if (kept := self._kept.get(name)) is not None else None

    def address(self) -> str:
        """Where `BorrowedServices` of other processes ask."""
        if self._listener is None:
            self._folder = tempfile.TemporaryDirectory(prefix="tidelake-run-")
            self._listener = Listener(str(Path(self._folder.name, "socket")), backlog=16)
            threading.Thread(target=self._listen, args=(self._listener,), daemon=True).start()
        return str(self._listener.address)

    def close(self) -> None:
        if self._listener is not None and self._folder is not None:
            self._listener.close()
            self._folder.cleanup()
        for each in self._kept.values():
            each.end()

    def _copy(self, name: str) -> bytes:
        with self._lock:
            if name not in self._kept:
                self._kept[name] = _Kept(name, self._kinds[name])
        return self._kept[name].copy()

    def _listen(self, listener: Listener) -> None:
        with suppress(OSError):  # it is closed
            while True:
                link = listener.accept()
                threading.Thread(target=self._answer, args=(link,), daemon=True).start()

    def _answer(self, link: Connection) -> None:
        with link, suppress(OSError, EOFError):  # the worker was killed
            question, name = link.recv()
            try:
                link.send(self.ended(name) if question == "ended" else self._copy(name))
            except ServiceGone as why:
                link.send(why)


class BorrowedServices:
    """Of the process that listens at this address."""

    def __init__(self, address: str) -> None:
        self._address = address

    def ask(self, name: str) -> Any:
        return pickle.loads(self._asked("copy", name))

    def ended(self, name: str) -> str | None:
        return self._asked("ended", name)  # type: ignore[no-any-return]

    def close(self) -> None: ...

    def _asked(self, question: str, name: str) -> Any:
        with Client(self._address) as link:
            link.send((question, name))
            answer = link.recv()
        if isinstance(answer, ServiceGone):
            raise answer
        return answer
