"""The catalogue: what is thrown at the gateway, and how often.

A fault is a function that makes one of its cases from a draft: the request, the upstream's script, the client's
behaviour, and every outcome that is allowed. Whatever it decides it decides by the draft's seed.
"""

from __future__ import annotations

from random import Random
from typing import Final

import client_faults
import healthy
import upstream_faults
from cases import Case, Draft, Make

__all__ = ["CATALOGUE", "case_named", "name_of"]

CATALOGUE: Final[dict[str, tuple[float, Make]]] = {
    "rest": (0, healthy.rest),
    "completion": (40, healthy.completion),
    "slow_tokens": (8, healthy.slow_tokens),
    "flood": (3, healthy.flood),
    "long_frame": (2, healthy.long_frame),
    "odd_frame": (4, healthy.odd_frame),
    "silence": (4, healthy.silence),
    "slow_reader": (3, healthy.slow_reader),
    "nap": (0.5, healthy.nap),
    "big_body": (3, healthy.big_body),
    "pipelined": (2, healthy.pipelined),
    "stray_bytes": (2, healthy.stray_bytes),
    "proxied": (3, healthy.proxied),
    "hangs_up": (3, upstream_faults.hangs_up),
    "half_head": (2, upstream_faults.half_head),
    "no_answer": (1, upstream_faults.no_answer),
    "no_http": (2, upstream_faults.no_http),
    "no_stream": (2, upstream_faults.no_stream),
    "error_status": (3, upstream_faults.error_status),
    "half_error": (1, upstream_faults.half_error),
    "breaks_off": (6, upstream_faults.breaks_off),
    "clean_cut": (3, upstream_faults.clean_cut),
    "bad_chunks": (2, upstream_faults.bad_chunks),
    "stalls": (3, upstream_faults.stalls),
    "stalls_before_the_first": (1, upstream_faults.stalls_before_the_first),
    "stalls_before_the_last": (1, upstream_faults.stalls_before_the_last),
    "trickles": (1, upstream_faults.trickles),
    "comments_for_ever": (1, upstream_faults.comments_for_ever),
    "frame_too_long": (2, upstream_faults.long_frame),
    "random_stream": (2, upstream_faults.random_stream),
    "error_frame": (3, upstream_faults.error_frame),
    "answers_early": (3, upstream_faults.answers_early),
    "reads_nothing": (2, upstream_faults.reads_nothing),
    "leaves": (14, client_faults.leaves),
    "half_request": (1, client_faults.half_request),
    "stops_reading": (1, client_faults.stops_reading),
    "body_stalls": (1, client_faults.body_stalls),
    "body_too_large": (2, client_faults.body_too_large),
    "bad_request": (4, client_faults.bad_request),
    "mangled": (3, client_faults.mangled),
    "noise": (2, client_faults.noise),
    "long_head": (1, client_faults.long_head),
    "other_protocol": (2, client_faults.other_protocol),
    "churn": (1, client_faults.churn),
    "proxied_cut": (1, client_faults.proxied_cut),
}
"""For each fault how often it comes, relative to the others, and how its cases are made."""


def name_of(seed: int, number: int, faults: tuple[str, ...]) -> str:
    """The name of a run's case: the fault is chosen by seed and number."""
    weights = [CATALOGUE[fault][0] for fault in faults]
    [fault] = Random(f"{seed}.{number}").choices(faults, weights)
    return f"{fault}.{seed}.{number}"


def case_named(name: str, client: str) -> Case:
    """The case of a name, always the same.

    Args:
        name: as ``name_of`` gives it.
        client: the gateway's ``upstream.client``.
    """
    return CATALOGUE[name.partition(".")[0]][1](Draft(name, client))
