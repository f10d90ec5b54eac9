"""The stage contract.

A stage is a state machine without I/O, clock or await, made fresh for each request. ``pipeline.driver`` runs it
between two memory channels. It keeps four promises, which ``pipeline.testing.check_conformance`` verifies:

* how the items are cut into bursts does not matter;
* ordinary frames are never reordered, merged, or delayed until a later one arrives;
* what it keeps is bounded by its options;
* it is silent after ``close`` and once it is ``finished``.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

import attrs
import trio

from pipeline.items import Item
from pipeline.observer import Observer
from pipeline.runs import Run, runs_in

__all__ = ["EventStyle", "Flow", "NoOptions", "RequestContext", "Stage"]


_PATIENCE: Final = 2
"""How often a stage is asked in a row about what is left of one run."""


class Flow(enum.Enum):
    """What a stage takes or gives."""

    ITEMS = "items"
    BYTES = "bytes"


class EventStyle(enum.Enum):
    """How side events look on the wire (DESIGN, section 1)."""

    NAMED = "named"
    CHUNK = "chunk"


@attrs.frozen
class NoOptions:
    """The options of a stage that has none."""


@attrs.frozen(eq=False)
class RequestContext:
    """What a stage may know of the request that it is made for."""

    request: Mapping[str, Any] = attrs.field(factory=dict)
    """The parsed request body."""
    events: frozenset[str] = frozenset()
    """The side events that are in force for this request."""
    event_style: EventStyle = EventStyle.NAMED
    """How side events are written."""
    request_id: str = ""
    """The id that client, log and upstream know the request by."""
    observer: Observer = attrs.field(factory=Observer)
    """Told what the stages see."""
    capture: bool = False
    """Whether the payload of this request is to be captured."""


class Stage:
    """One step of the handler. Subclass it, set ``Options`` if it has any, and override ``feed``.

    The first line of the subclass's docstring is its description in ``callahead stages``.
    """

    Options: ClassVar[type[Any]] = NoOptions
    """An attrs class: every attribute has a default and is a key of ``[stages.NAME]``."""
    takes: ClassVar[Flow] = Flow.ITEMS
    gives: ClassVar[Flow] = Flow.ITEMS
    events: ClassVar[frozenset[str]] = frozenset()
    """The side events that the stage can produce; clients ask for them by these names."""
    precedes: ClassVar[Mapping[str, str]] = {}
    """Stages that may only stand behind this one, each with the reason."""

    finished: bool = False
    """Set by a stage once nothing more may follow: the driver then ends the stream on both sides."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        """What a class does to an item in another way than the one it is derived from, it does to every item."""
        super().__init_subclass__(**arguments)
        own = cls.__dict__.keys()
        if own & {"feed", "run", "close"} and not own & {"wakes_for", "first_to_wake"}:
            cls.wakes_for = Stage.wakes_for  # type: ignore[method-assign]
            cls.first_to_wake = Stage.first_to_wake  # type: ignore[method-assign]
        if "feed" in own and "feed_run" not in own:
            cls.feed_run = Stage.feed_run  # type: ignore[method-assign]

    def __init__(self, options: Any, context: RequestContext) -> None:
        self.options = options
        self.context = context

    @classmethod
    def is_idle(cls, options: Any, context: RequestContext) -> bool:  # noqa: ARG003 - for subclasses
        """Whether the stage has nothing to do in this request, and is left out of its pipeline."""
        return False

    @classmethod
    def request_defaults(cls, options: Any) -> Mapping[str, Any]:  # noqa: ARG003 - for subclasses
        """Fields that the request to the upstream needs where the client has not set them."""
        return {}

    @property
    def can_sleep(self) -> bool:
        """Whether it may be left out of its pipeline until an item concerns it."""
        kind = type(self)
        return kind.wakes_for is not Stage.wakes_for or kind.first_to_wake is not Stage.first_to_wake

    def wakes_for(self, item: Item) -> bool:  # noqa: ARG002 - for subclasses
        """Whether an item is the first one that the stage must see.

        A stage that overrides it sleeps until then: all before that item goes past it, and it has no task; if no item
        ever concerns it, it is not closed either. It is asked about each item in order, of neighbouring chunks of one
        shape about the first, and may note what it learns, but nothing of the item for which it says yes.
        """
        return True

    def first_to_wake(self, burst: list[Any]) -> int | None:
        """Where the first item of a burst is that the stage must see; none if it sleeps on.

        For stages that must look at more than ``wakes_for`` is asked about.
        """
        if len(burst) == 1:
            return 0 if self.wakes_for(burst[0]) else None
        at = 0
        for part in runs_in(burst):
            if type(part) is Run:
                if self.wakes_for(part.chunks[0]):
                    return at
                at += len(part.chunks)
            elif self.wakes_for(part):
                return at
            else:
                at += 1
        return None

    def feed(self, item: Item) -> Iterable[Any]:
        """Take one item, give none to many. Called in order; never after ``close``."""
        return (item,)

    def feed_run(self, run: Run, out: list[Any]) -> int:  # noqa: ARG002 - for subclasses
        """Take neighbouring chunks of one shape at once, as many as that makes no difference for.

        It is there for speed alone: what comes of the chunks, which is appended to ``out``, is what ``feed`` would give
        for one after the other.

        Returns:
            How many were taken, from the first on. The next one is fed. 0, the default: each is fed.
        """
        return 0

    def feed_burst(self, burst: list[Any], out: list[Any]) -> None:
        """Feed a burst until the stage is finished; what comes of it is appended to ``out``."""
        for part in runs_in(burst):
            if type(part) is Run:
                taken = self.feed_run(part, out)
                if taken < len(part.chunks):
                    self._feed_rest(part, taken, out)
            else:
                out += self.feed(part)
            if self.finished:
                return

    def _feed_rest(self, run: Run, at: int, out: list[Any]) -> None:
        """Feed what ``feed_run`` has not taken: one chunk, behind which there may be a run again."""
        chunks = run.chunks
        declined = 0 if at else 1
        while at < len(chunks) and not self.finished:
            out += self.feed(chunks[at])
            at += 1
            if declined < _PATIENCE and at < len(chunks) and not self.finished:
                taken = self.feed_run(Run(run.shape, chunks[at:]), out)
                at += taken
                declined = 0 if taken else declined + 1

    def close(self) -> Iterable[Any]:
        """The source has ended: give what is left. Called at most once; not after a cancellation."""
        return ()

    async def run(
        self,
        receive: trio.MemoryReceiveChannel[list[Any]],
        send: trio.MemorySendChannel[list[Any]],
    ) -> None:
        """Move bursts from ``receive`` to ``send`` until the end. Override it in a stage that must await.

        A burst that was received is shared, like its items: it is never changed.

        Checkpoints. Whoever overrides it leaves closing the channels to the caller, lets ``Cancelled`` pass, and
        treats ``trio.BrokenResourceError`` from ``send`` as "downstream is done".
        """
        from pipeline.driver import move_bursts  # noqa: PLC0415 - the driver is written against this contract

        await move_bursts(self, receive, send)
