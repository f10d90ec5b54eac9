"""A configured order of stages."""

import enum
from importlib.metadata import EntryPoint
from typing import ClassVar, Literal

import attrs
import pytest

from pipeline.errors import PlanError
from pipeline.plan import DEFAULT_STAGES, make_plan
from pipeline.registry import ENTRY_POINT_GROUP, StageRegistry
from pipeline.stage import Flow, RequestContext, Stage


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class ShoutOptions:
    mark: str = "!"
    times: int = attrs.field(default=1, validator=[attrs.validators.ge(1), attrs.validators.le(9)])
    pause: float = 0.5
    loud: bool = True
    words: tuple[str, ...] = ()
    sizes: list[int] = attrs.field(factory=list)
    style: Literal["wide", "tall"] = "wide"
    colour: Colour = Colour.RED
    limit: int | None = None

    def __attrs_post_init__(self) -> None:
        if self.times > 5 and self.loud:
            raise ValueError("times over 5 needs loud = false")


class Shout(Stage):
    """Makes text louder."""

    Options = ShoutOptions
    events = frozenset({"shouted"})

    @classmethod
    def is_idle(cls, options: ShoutOptions, context: RequestContext) -> bool:
        """Loud stages wait until they are asked."""
        return options.loud and "shouted" not in context.events


class Whisper(Stage):
    """Must come before whatever shouts."""

    events = frozenset({"whispered"})
    precedes: ClassVar = {"shout": "a whisper cannot be heard after it"}


class Encoder(Stage):
    """Gives bytes."""

    gives = Flow.BYTES


class Gzip(Stage):
    """Takes bytes and gives bytes."""

    takes = Flow.BYTES
    gives = Flow.BYTES


REGISTRY = StageRegistry(
    EntryPoint(name, f"{__name__}:{name.capitalize()}", ENTRY_POINT_GROUP)
    for name in ("shout", "whisper", "encoder", "gzip")
)


def plan(*names: str, **options: dict[str, object]):
    return make_plan(names, options, REGISTRY)


def error_of(*names: str, **options: dict[str, object]) -> str:
    with pytest.raises(PlanError) as caught:
        plan(*names, **options)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{caught.value.key}: ")
    return str(caught.value)


class TestOrder:
    """What may stand where."""

    def test_allowed(self):
        """Items to items to bytes, and bytes to bytes."""
        made = plan("whisper", "shout", "encoder", "gzip")
        assert [(step.name, step.stage) for step in made.steps] == [
            ("whisper", Whisper),
            ("shout", Shout),
            ("encoder", Encoder),
            ("gzip", Gzip),
        ]

    @pytest.mark.parametrize(
        ("names", "message"),
        [
            ([], "pipeline.stages: is empty; the last stage must give bytes, as sse_encoder does"),
            (
                ["shuot", "encoder"],
                (
                    'pipeline.stages[0]: there is no stage "shuot"; did you mean "shout"?; installed: encoder, gzip, shout, '
                    "whisper; a stage of your own is written module:attribute"
                ),
            ),
            (["whisper", "whisper", "encoder"], 'pipeline.stages[1]: stage "whisper" stands in the order twice'),
            (
                ["whisper", "gzip"],
                'pipeline.stages[1]: stage "gzip" takes bytes, but stage "whisper" before it gives items',
            ),
            (["gzip"], 'pipeline.stages[0]: stage "gzip" takes bytes, but the source gives items'),
            (
                ["encoder", "shout"],
                'pipeline.stages[1]: stage "shout" takes items, but stage "encoder" before it gives bytes',
            ),
            (
                ["whisper"],
                'pipeline.stages[0]: the last stage "whisper" gives items; it must give bytes: put "sse_encoder" last',
            ),
            (
                ["shout", "whisper", "encoder"],
                'pipeline.stages[1]: stage "whisper" must stand before "shout": a whisper cannot be heard after it',
            ),
        ],
    )
    def test_refused(self, names, message):
        """One line with the place in the order and the reason."""
        assert error_of(*names) == message

    def test_module_and_attribute(self):
        """A stage of the user's own stands in the order by its address, and its options under it."""
        name = f"{__name__}:Shout"
        made = make_plan([name, "encoder"], {name: {"times": 2}}, REGISTRY)
        assert made.steps[0].options.times == 2

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("nowhere:X", "module nowhere cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
            (f"{__name__}:Shot", f'module {__name__} has no attribute Shot; did you mean "Shout"?'),
        ],
    )
    def test_address_that_leads_nowhere(self, name, message):
        """What went wrong with the import, in the line of its place."""
        assert error_of("whisper", name, "encoder") == f'pipeline.stages[1]: stage "{name}": {message}'

    def test_default_order_ends_with_the_encoder(self):
        """The built-in order is that of spec, dispatch, 2.4."""
        assert DEFAULT_STAGES == (
            "parallel_call_filter",
            "role_dedup",
            "empty_skip",
            "tool_call_dispatch",
            "reasoning_dispatch",
            "sse_encoder",
        )


class TestOptions:
    """What stands under ``[stages.NAME]``."""

    def test_read(self):
        """Each value in its own type; an integer is a number too; what is absent has its default."""
        table = {"times": 2, "pause": 1, "words": ["a"], "sizes": [1, 2], "style": "tall", "colour": "blue", "limit": 3}
        (step, _) = plan("shout", "encoder", shout=table).steps
        assert step.options == ShoutOptions("!", 2, 1.0, True, ("a",), [1, 2], "tall", Colour.BLUE, 3)
        assert type(step.options.pause) is float

    def test_options_are_judged_together(self):
        """What is only right beside another option is right."""
        (step, _) = plan("shout", "encoder", shout={"times": 6, "loud": False}).steps
        assert step.options.times == 6

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"marc": "?"}, 'stages.shout.marc: is no option of this stage; did you mean "mark"?'),
            (
                {"zzz": 1},
                (
                    "stages.shout.zzz: is no option of this stage; it has mark, times, pause, loud, words, sizes, style, "
                    "colour, limit"
                ),
            ),
            ({"times": "2"}, "stages.shout.times: is '2', of type str; it must be of type int"),
            ({"times": True}, "stages.shout.times: is True, of type bool; it must be of type int"),
            ({"times": 1.0}, "stages.shout.times: is 1.0, of type float; it must be of type int"),
            ({"times": 0}, "stages.shout: 'times' must be >= 1: 0"),
            ({"pause": "1"}, "stages.shout.pause: is '1', of type str; it must be of type float"),
            ({"loud": 1}, "stages.shout.loud: is 1, of type int; it must be of type bool"),
            ({"mark": ["!"]}, "stages.shout.mark: is ['!'], of type list; it must be of type str"),
            ({"words": "ab"}, "stages.shout.words: is 'ab', of type str; it must be a list"),
            ({"words": ["a", 1]}, "stages.shout.words: is 1, of type int; it must be of type str"),
            ({"sizes": {"a": 1}}, "stages.shout.sizes: is {'a': 1}, of type dict; it must be a list"),
            ({"style": "tal"}, "stages.shout.style: is 'tal'; it must be 'wide' or 'tall'; did you mean \"tall\"?"),
            ({"style": ["wide"]}, "stages.shout.style: is ['wide']; it must be 'wide' or 'tall'"),
            ({"colour": "green"}, "stages.shout.colour: 'green' is not a valid Colour"),
            ({"limit": "1"}, "stages.shout.limit: is '1', of type str; it must be of type int"),
            ({"times": 6, "loud": True}, "stages.shout: times over 5 needs loud = false"),
        ],
    )
    def test_refused(self, options, message):
        """One line with the key, what was found and what is right."""
        assert error_of("shout", "encoder", shout=options) == message

    def test_stage_without_options(self):
        """It says so."""
        assert (
            error_of("encoder", encoder={"level": 1}) == "stages.encoder.level: is no option of this stage; it has none"
        )

    @pytest.mark.parametrize(
        ("name", "hint"), [("shuot", '; did you mean "shout"?'), ("gzip", "")], ids=["mistyped", "left out"]
    )
    def test_stage_that_is_not_in_the_order(self, name, hint):
        """Options that nobody reads are a mistake."""
        message = f"stages.{name}: has options but is not in pipeline.stages{hint}"
        assert error_of("shout", "encoder", **{name: {}}) == message


class TestOneRequest:
    """What a plan makes for each request."""

    def test_fresh_stages(self):
        """New objects each time, with the plan's options and the request's context."""
        made = plan("whisper", "shout", "encoder", shout={"mark": "?"})
        context = RequestContext(events=frozenset({"shouted"}))
        first, second = made.stages_for(context), made.stages_for(context)
        assert [name for name, _ in first] == ["whisper", "shout", "encoder"]
        assert not {id(stage) for _, stage in first} & {id(stage) for _, stage in second}
        assert first[1][1].options.mark == "?"
        assert all(stage.context is context for _, stage in first)

    def test_idle_stages_are_left_out(self):
        """A stage with nothing to do in a request has no place in it."""
        made = plan("whisper", "shout", "encoder")
        assert [name for name, _ in made.stages_for(RequestContext())] == ["whisper", "encoder"]

    def test_events(self):
        """The events that a plan can produce are those of its stages."""
        assert plan("whisper", "shout", "encoder").events == {"shouted", "whispered"}
        assert plan("encoder").events == frozenset()
