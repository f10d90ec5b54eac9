"""Payloads folded into a response."""

from __future__ import annotations

from stages.aggregate import Aggregate


def fold(payloads, options=None):
    """The response of some chunks."""
    aggregate = Aggregate(options)
    for payload in payloads:
        aggregate.feed(payload)
    return aggregate.response()


def fold_message(*deltas):
    """The message of one choice's deltas."""
    (choice,) = fold({"choices": [{"index": 0, "delta": delta}]} for delta in deltas)["choices"]
    return choice["message"]
