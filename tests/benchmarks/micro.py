"""Microbenchmarks of the pieces: scanner, codec, a hop, each stage.

python tests/benchmarks/micro.py
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import trio
import upstream

from pipeline.assembly import open_pipeline
from pipeline.decode import ItemDecoder
from pipeline.plan import DEFAULT_STAGES, make_plan
from pipeline.registry import StageRegistry
from pipeline.stage import RequestContext, Stage
from stages.json_scanner import JsonScanner

EVENTS = frozenset({"tool_call_dispatch", "reasoning_dispatch"})
FRAMES = 2000
READ = 65_536


def best(run: Callable[[], float], times: int = 9) -> float:
    """The shortest of several runs, in seconds: what the work takes when nothing disturbs it."""
    return min(run() for _ in range(times))


def body_of(kind: str) -> bytes:
    """A stream of frames."""
    frames = [upstream.frame({"role": "assistant", "content": ""}), *map(upstream.frame, upstream.deltas(kind, FRAMES))]
    return b"".join([*frames, upstream.frame({}, "stop" if kind == "text" else "tool_calls"), b"data: [DONE]\n\n"])


def scanner(text: str, size: int) -> str:
    """The scanner over fragments of one size."""
    fragments = [text[at : at + size] for at in range(0, len(text), size)]

    def run() -> float:
        feed = JsonScanner().feed
        started = time.perf_counter()
        for fragment in fragments:
            feed(fragment)
        return time.perf_counter() - started

    seconds = best(run, 5)
    return f"{len(text) / seconds / 1e6:8.1f} MB/s {seconds / len(text) * 1e9:8.2f} ns a byte"


def stages(kind: str) -> list[tuple[str, float]]:
    """Decoder and stages over the bursts of one stream: microseconds a frame."""
    body = body_of(kind)
    reads = [body[at : at + READ] for at in range(0, len(body), READ)]
    plan = make_plan(DEFAULT_STAGES, {}, StageRegistry())

    def once() -> list[tuple[str, float]]:
        named = plan.stages_for(RequestContext(events=EVENTS))
        decoder = ItemDecoder()
        spent = dict.fromkeys(["decoder", *(name for name, _ in named)], 0.0)
        for read in reads:
            started = time.perf_counter()
            items: list[Any] = list(decoder.feed(read))
            spent["decoder"] += time.perf_counter() - started
            for name, stage in named:
                out: list[Any] = []
                started = time.perf_counter()
                stage.feed_burst(items, out)
                spent[name] += time.perf_counter() - started
                items = out
        return list(spent.items())

    runs = [once() for _ in range(15)]
    return [(name, min(run[place][1] for run in runs) / FRAMES * 1e6) for place, (name, _) in enumerate(runs[0])]


def hop(burst: int, *, join: bool) -> float:
    """What a stage that does nothing costs between two channels: microseconds an item."""
    bursts = 4000 // burst

    async def source(send: trio.MemorySendChannel[list[Any]]) -> None:
        for _ in range(bursts):
            await send.send([0] * burst)
            await trio.lowlevel.checkpoint()

    async def through(named: Sequence[tuple[str, Stage]]) -> float:
        started = time.perf_counter()
        async with open_pipeline(source, named, join=join) as receive:
            async for _ in receive:
                pass
        return time.perf_counter() - started

    def seconds(count: int) -> float:
        return best(lambda: trio.run(through, [(str(n), Stage(None, RequestContext())) for n in range(count)]), 5)

    return (seconds(7) - seconds(1)) / 6 / (bursts * burst) * 1e6


def main() -> None:
    """Print all figures."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 10, 10)
    ordinary = json.dumps([{"id": n, "name": f"item {n}", "tags": ["a", "b\n"], "ok": True} for n in range(20_000)])
    for name, text, size in (
        ("ordinary JSON, 4 KiB", ordinary, 4096),
        ("ordinary JSON, 4 bytes", ordinary, 4),
        ("100 kB string, 4 bytes", '{"a":"' + "abcd" * 25_000 + '"}', 4),
        ("10 MB string, 4 bytes", '{"a":"' + "abcd" * 2_500_000 + '"}', 4),
    ):
        print(f"scanner, {name:24} {scanner(text, size)}")
    for kind in ("text", "tools"):
        figures = stages(kind)
        for name, microseconds in figures:
            print(f"{kind + ', ' + name:34} {microseconds:6.2f} us a frame")
        print(f"{kind + ', all':34} {sum(each for _, each in figures):6.2f} us a frame")
    for burst in (1, 8, 64):
        print(
            f"a hop, bursts of {burst:<3} {hop(burst, join=False):6.2f} us an item, joined {hop(burst, join=True):6.2f}"
        )


if __name__ == "__main__":
    main()
