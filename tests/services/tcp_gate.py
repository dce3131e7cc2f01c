"""A gate before a server: shut, nothing passes and nobody is told, as when a cable is pulled."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from asyncio import StreamReader, StreamWriter


class TcpGate:
    """A context manager; ``port`` leads to ``target_port`` of this machine."""

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._open = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tcp-gate", daemon=True)

    def __enter__(self) -> TcpGate:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def shut(self) -> None:
        self._loop.call_soon_threadsafe(self._open.clear)

    def open(self) -> None:
        self._loop.call_soon_threadsafe(self._open.set)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._take, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._open.set()
        self._ready.set()
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        server.close()
        self._loop.close()

    async def _take(self, reader: StreamReader, writer: StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._open.wait()
            there = await asyncio.open_connection("127.0.0.1", self._target_port)
            await asyncio.wait(
                [
                    asyncio.ensure_future(self._carry(reader, there[1])),
                    asyncio.ensure_future(self._carry(there[0], writer)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
            there[1].close()
        writer.close()

    async def _carry(self, reader: StreamReader, writer: StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
