"""A request that does not stream: its upstream is asked to stream, and the answer is folded into one response."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import trio

from pipeline.assembly import Source, open_pipeline
from pipeline.chunks import encode_json, error_of, exact_object, exact_payload, parse_json, reports_error
from pipeline.decode import reported_failure
from pipeline.items import Chunk, End, Payload, StreamError
from pipeline.runs import Run, runs_in
from pipeline.stage import Flow, Stage
from server.demand import Demand
from server.errors import UpstreamError, UpstreamErrorKind
from stages.aggregate import Aggregate, AggregateOptions
from stages.empty_skip import EmptySkip
from stages.parallel_call_filter import ParallelCallFilter
from stages.role_dedup import RoleDedup

__all__ = ["as_streaming", "fold", "with_fields"]

_FOR_STREAMS_ONLY: Final = (EmptySkip, ParallelCallFilter, RoleDedup)
"""What these do to a stream the fold does by itself, and in its own way: it keeps the first call of a choice, not the
one with index 0 (spec, dispatch, 4.2.7), and a stream of empty chunks is a response (A24)."""


def as_streaming(body: bytes) -> bytes:
    """The request body that asks for the same as a stream, with usage; numbers of any length stay as they are.

    Args:
        body: a JSON object.
    """
    request = exact_object(parse_json(body), body)
    options = request.get("stream_options")
    options = options if isinstance(options, dict) else {}
    return encode_json({**request, "stream": True, "stream_options": {**options, "include_usage": True}})


def with_fields(body: bytes, fields: Mapping[str, Any]) -> bytes:
    """The request body with more fields; the very bytes where there are none.

    Args:
        body: a JSON object.
        fields: by key.
    """
    return encode_json({**exact_object(parse_json(body), body), **fields}) if fields else body


async def fold(
    source: Source, stages: Sequence[tuple[str, Stage]], options: AggregateOptions, demand: Demand
) -> Payload:
    """Run a stream through the stages that stand before the encoder, and fold what comes out.

    Checkpoints. Cancellation ends every task of the request.

    Args:
        source: where the items come from.
        stages: the request's stages, in running order.
        options: what the request says about its answer.
        demand: told when a burst is taken, and when more is wanted.

    Raises:
        StreamFailure: the stream failed, broke off, ended too early or held nothing. Half an answer is never given.
    """
    aggregate = Aggregate(options)
    async with open_pipeline(source, _folded(stages)) as bursts:
        async for burst in bursts:
            demand.taken()
            for part in runs_in(burst):
                if isinstance(part, End):
                    return _whole(aggregate)
                if isinstance(part, Run):
                    aggregate.feed_run(part)
                else:
                    _fold_item(part, aggregate)
            demand.wants_more()
        await trio.lowlevel.checkpoint_if_cancelled()  # a source being cancelled is no end of the stream
    cut = aggregate.cut()
    if cut is not None and aggregate.chunks:
        raise cut
    return _whole(aggregate)


def _folded(stages: Sequence[tuple[str, Stage]]) -> list[tuple[str, Stage]]:
    """The stages that give items, without those that only a stream needs."""
    giving_items = itertools.takewhile(lambda named: named[1].gives is Flow.ITEMS, stages)
    return [(name, stage) for name, stage in giving_items if not isinstance(stage, _FOR_STREAMS_ONLY)]


def _fold_item(item: Any, aggregate: Aggregate) -> None:
    if isinstance(item, StreamError):
        raise item.failure
    if isinstance(item, Chunk):
        if reports_error(item.payload):
            raise reported_failure(error_of(item.payload), item.raw or b"")
        aggregate.feed(exact_payload(item))


def _whole(aggregate: Aggregate) -> Payload:
    if not aggregate.chunks:
        raise UpstreamError(UpstreamErrorKind.NOT_A_STREAM, "the upstream's stream held no chunk")
    return aggregate.response()
