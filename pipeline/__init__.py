"""What flows through Callahead, and how stages are joined. Knows nothing of HTTP servers."""

from pipeline.errors import CallaheadError, PlanError, RegistryError, StreamFailure
from pipeline.items import Chunk, End, Item, Shape, SideEvent, StreamError, Verbatim
from pipeline.observer import Observer
from pipeline.plan import DEFAULT_STAGES, Plan, make_plan
from pipeline.registry import StageRegistry
from pipeline.runs import Run
from pipeline.sse import Frame, SseDecoder, sse_frame
from pipeline.stage import EventStyle, Flow, NoOptions, RequestContext, Stage
from pipeline.watching import WatchingStage

__all__ = [
    "DEFAULT_STAGES",
    "CallaheadError",
    "Chunk",
    "End",
    "EventStyle",
    "Flow",
    "Frame",
    "Item",
    "NoOptions",
    "Observer",
    "Plan",
    "PlanError",
    "RegistryError",
    "RequestContext",
    "Run",
    "Shape",
    "SideEvent",
    "SseDecoder",
    "Stage",
    "StageRegistry",
    "StreamError",
    "StreamFailure",
    "Verbatim",
    "WatchingStage",
    "make_plan",
    "sse_frame",
]
