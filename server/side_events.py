"""Which side events are in force for a request: what the client asks for, within what the config allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from pipeline.stage import EventStyle
from server.errors import ClientError

__all__ = ["EVENTS_HEADER", "STYLE_HEADER", "EventsInForce", "decide_events"]

EVENTS_HEADER: Final = "Callahead-Events"
STYLE_HEADER: Final = "Callahead-Event-Style"


@attrs.frozen
class EventsInForce:
    """The decision for one request."""

    names: frozenset[str]
    style: EventStyle

    def response_headers(self) -> list[tuple[str, str]]:
        """What the client is told, so that "no calls" and "not supported" differ."""
        if not self.names:
            return []
        return [
            (EVENTS_HEADER, ", ".join(sorted(self.names, reverse=True))),
            (STYLE_HEADER, self.style.value),
        ]


def decide_events(
    asked: str, style: str, policies: Mapping[str, str], producible: frozenset[str], default_style: EventStyle
) -> EventsInForce:
    """Decide from the request's headers (DESIGN, section 1, "Side events are opt-in").

    Args:
        asked: the value of ``Callahead-Events``; unknown names are ignored.
        style: the value of ``Callahead-Event-Style``, or ``""``.
        policies: for an event ``never``, ``request`` or ``always``; an event without one is ``request``.
        producible: the events that the configured stages can produce.
        default_style: for a client that names none.

    Raises:
        ClientError: 400 for an unknown style, since every frame would be read wrongly.
    """
    wanted = {name.strip().lower() for name in asked.split(",")}
    names = {
        name
        for name in producible
        if (policy := policies.get(name, "request")) == "always" or (policy == "request" and name in wanted)
    }
    if not style.strip():
        return EventsInForce(frozenset(names), default_style)
    try:
        return EventsInForce(frozenset(names), EventStyle(style.strip().lower()))
    except ValueError:
        known = ", ".join(each.value for each in EventStyle)
        raise ClientError(
            400, "unknown_event_style", f"header {STYLE_HEADER} is {style!r}; it must be one of: {known}"
        ) from None
