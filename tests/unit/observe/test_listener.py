"""What the listener bounds and says, whatever application is behind it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from streams.errors import ConfigError
from streams.observe.listener import Listener
from streams.observe.server import ObserveServer
from streams.settings import Settings


async def fails(_request: web.Request) -> web.Response:
    message = "a bug of ours"
    raise RuntimeError(message)


async def works(_request: web.Request) -> web.Response:
    return web.Response(text="here")


@asynccontextmanager
async def listening(**options: Any) -> AsyncIterator[Listener]:
    app = web.Application()
    app.add_routes([web.get("/works", works), web.get("/fails", fails)])
    bounds = {"connections_max": 8, "drain_s": 0, **options}
    listener = Listener(app, "127.0.0.1", bounds.pop("port", 0), **bounds)
    await listener.start()
    try:
        yield listener
    finally:
        await listener.stop()


async def told(listener: Listener, text: bytes) -> bytes:
    """Send bytes over a connection of their own; return all that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(text)
    answer = await reader.read()
    writer.close()
    return answer


async def test_a_connection_beyond_the_bound_is_closed() -> None:
    async with (
        listening(connections_max=1) as listener,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{listener.port}", timeout=60) as client,
    ):
        assert (await client.get("/works")).status_code == 200
        assert await told(listener, b"") == b"", "closed without a word"
        assert (await client.get("/works")).status_code == 200


async def test_a_request_that_takes_long_is_not_silence() -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slow(_request: web.Request) -> web.Response:
        asked.set()
        await answer.wait()
        return web.Response(text="at last")

    app = web.Application()
    app.add_routes([web.get("/slow", slow)])
    listener = Listener(app, "127.0.0.1", 0, connections_max=2, drain_s=0, silence_s=1.5)
    await listener.start()
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{listener.port}", timeout=60
    ) as client:
        asking = asyncio.create_task(client.get("/slow"))
        await asked.wait()
        # Opened later and closed for its silence: the slow one's time is over as well.
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        assert await reader.read() == b""
        writer.close()
        answer.set()
        assert (await asking).text == "at last"
    await listener.stop()


async def test_a_connection_that_never_asks_is_closed_and_one_that_has_asked_may_rest() -> None:
    listener = Listener(
        web.Application(), "127.0.0.1", 0, connections_max=2, drain_s=0, silence_s=1.5
    )
    await listener.start()
    asking, ask = await asyncio.open_connection("127.0.0.1", listener.port)
    ask.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await asking.readline()).startswith(b"HTTP/1.1 404")
    silent, half = await asyncio.open_connection("127.0.0.1", listener.port)
    half.write(b"GET / HTTP/1.1\r\nHost: x\r\n")
    assert await silent.read() == b""
    # The other connection is older, so its time is over as well.
    ask.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert (await asking.read()).count(b"HTTP/1.1 404") == 1
    half.close()
    ask.close()
    await listener.stop()


async def test_a_port_that_is_taken_is_a_setting_that_is_wrong() -> None:
    async with listening() as listener:
        with pytest.raises(ConfigError, match=r"HARN_HTTP_PORT are .* which is in use"):
            async with listening(port=listener.port):
                pass
        settings = Settings(metrics_port=listener.port)
        metrics = ObserveServer(settings, CollectorRegistry(), ready=lambda: True)
        with pytest.raises(ConfigError, match=r"HARN_METRICS_PORT are .* which is in use"):
            await metrics.start()
        await metrics.stop()


async def test_metrics_are_served_within_the_same_bounds() -> None:
    metrics = ObserveServer(Settings(metrics_port=0), CollectorRegistry(), ready=lambda: False)
    await metrics.start()
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{metrics.port}", timeout=60
        ) as client:
            assert (await client.get("/healthz")).json() == {"status": "alive"}
            assert (await client.get("/readyz")).status_code == 503
            assert (await client.get("/metrics")).headers["Server"] == "harn"
            silent = [await asyncio.open_connection("127.0.0.1", metrics.port) for _ in range(64)]
            answers = [asyncio.create_task(reader.read()) for reader, _ in silent]
            done, _ = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
            assert {each.result() for each in done} == {b""}, "one beyond the bound is closed"
            assert (await client.get("/healthz")).status_code == 200
            for _, writer in silent:
                writer.close()
            await asyncio.wait(answers)
    finally:
        await metrics.stop()


async def test_the_log_says_where_metrics_are(caplog: pytest.LogCaptureFixture) -> None:
    metrics = ObserveServer(Settings(metrics_port=0), CollectorRegistry(), ready=lambda: True)
    with caplog.at_level(logging.INFO):
        await metrics.start()
    await metrics.stop()
    [told] = [each for each in caplog.records if each.message == "metrics_listening"]
    assert vars(told)["port"] == metrics.port != 0


MALFORMED = [
    b"POST /works HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nsecret",
    b"POST /works HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"GET /works\xff HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /works HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 1_000 + b"\r\n",
    b"POST /works HTTP/1.1\r\nHost: x\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\nx",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 100,
]


async def test_what_is_no_http_is_refused_and_is_no_error_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Anybody can send it: the log holds neither a line for each, nor what came."""
    caplog.set_level(logging.INFO)
    async with listening() as listener:
        for text in MALFORMED * 2:
            assert (await told(listener, text)).split(b" ")[1] == b"400"
    lines = [each for each in caplog.records if each.name.startswith(("harn.http", "aiohttp"))]
    assert [each.message for each in lines if each.levelno > logging.INFO] == []
    malformed = [each for each in lines if each.message == "http_request_malformed"]
    assert len(malformed) <= 1, "once in a while"
    assert "secret" not in caplog.text


async def test_a_body_that_nobody_reads_and_nobody_could_is_no_error_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is read to its end after the answer, and is not what its encoding says."""
    caplog.set_level(logging.INFO)
    told_of = b"Content-Encoding: gzip\r\nContent-Length: 6\r\n\r\n"
    text = b"GET /nowhere HTTP/1.1\r\nHost: x\r\n" + told_of + b"secret"
    async with listening() as listener:
        assert (await told(listener, text)).split(b" ")[1] == b"404"
    assert [each.message for each in caplog.records if each.levelno > logging.INFO] == []
    assert "secret" not in caplog.text


async def test_a_bug_of_ours_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async with listening() as listener:
        answer = await told(
            listener, b"GET /fails HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
    assert answer.startswith(b"HTTP/1.1 500")
    assert b"a bug of ours" not in answer
    assert "a bug of ours" in caplog.text
