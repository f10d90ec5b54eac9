"""A request that does not stream: its upstream is asked to stream, and the answer is folded into one response."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pipeline.assembly import Source, open_pipeline
from pipeline.chunks import encode_json, error_of, parse_json
from pipeline.completeness import Completeness
from pipeline.decode import reported_failure
from pipeline.items import Chunk, End, Payload, StreamError
from pipeline.stage import Flow, Stage
from server.errors import UpstreamError, UpstreamErrorKind
from stages.aggregate import Aggregate, AggregateOptions

__all__ = ["as_streaming", "fold"]


def as_streaming(body: bytes) -> bytes:
    """The request body that asks for the same as a stream, with usage; numbers of any length stay as they are."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):  # what orjson reads and the standard library does not
        request = parse_json(body)
    options = request.get("stream_options")
    request["stream"] = True
    request["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
    return encode_json(request)


async def fold(source: Source, stages: Sequence[tuple[str, Stage]], options: AggregateOptions) -> Payload:
    """Run a stream through the stages that stand before the encoder, and fold what comes out.

    Checkpoints. Cancellation ends every task of the request.

    Args:
        source: where the items come from.
        stages: the request's stages, in running order.
        options: what the request says about its answer.

    Raises:
        StreamFailure: the stream failed, broke off, ended too early or held nothing. Half an answer is never given.
    """
    aggregate = Aggregate(options)
    completeness = Completeness()
    async with open_pipeline(source, _before_encoder(stages)) as bursts:
        async for burst in bursts:
            for item in burst:
                if isinstance(item, End):
                    return _whole(aggregate)
                _fold_item(item, aggregate, completeness)
    cut = completeness.cut()
    if cut is not None and aggregate.chunks:
        raise cut
    return _whole(aggregate)


def _before_encoder(stages: Sequence[tuple[str, Stage]]) -> list[tuple[str, Stage]]:
    taken = []
    for name, stage in stages:
        if stage.gives is not Flow.ITEMS:
            break
        taken.append((name, stage))
    return taken


def _fold_item(item: Any, aggregate: Aggregate, completeness: Completeness) -> None:
    if isinstance(item, StreamError):
        raise item.failure
    if isinstance(item, Chunk):
        error = error_of(item.payload)
        if error is not None:
            raise reported_failure(error, item.raw or b"")
        completeness.see(item.payload)
        aggregate.feed(item.payload)


def _whole(aggregate: Aggregate) -> Payload:
    if not aggregate.chunks:
        raise UpstreamError(UpstreamErrorKind.NOT_A_STREAM, "the upstream's stream held no chunk")
    return aggregate.response()
