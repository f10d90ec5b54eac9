"""From a stage's name to its class."""

import sys
from importlib.metadata import EntryPoint

import attrs
import pytest

from pipeline.class_registry import nearest
from pipeline.errors import RegistryError
from pipeline.registry import ENTRY_POINT_GROUP, StageRegistry
from pipeline.stage import Flow, Stage


class Shout(Stage):
    """Makes text louder.

    It has more to say about that.
    """

    @attrs.frozen
    class Options:
        """Two of them."""

        mark: str = "!"
        times: int = 1


class Silent(Stage):
    gives = Flow.BYTES


class Plain(Stage):
    class Options:
        """No attrs class."""

        mark = "!"


class Demanding(Stage):
    @attrs.frozen
    class Options:
        """Without a default."""

        mark: str


class Mistyped(Stage):
    @attrs.frozen
    class Options:
        """Of a type that there is not."""

        mark: "Marc" = "!"  # noqa: F821 - the fault


class Outer:
    Inner = Shout


not_a_stage = Shout.feed


@pytest.fixture
def registry(monkeypatch):
    """Three entry points, one of which leads nowhere."""
    monkeypatch.setitem(sys.modules, "my_stages", sys.modules[__name__])
    points = {
        "shout": "my_stages:Shout",
        "silent": "my_stages:Silent",
        "lost": "my_stages:Lost",
        "odd": "my_stages:Outer",
    }
    return StageRegistry([EntryPoint(name, value, ENTRY_POINT_GROUP) for name, value in points.items()])


class TestFinding:
    """Installed names and ``module:attribute``."""

    def test_names(self, registry):
        """All installed names, sorted."""
        assert registry.names() == ["lost", "odd", "shout", "silent"]

    @pytest.mark.parametrize("name", ["shout", "my_stages:Shout", "my_stages:Outer.Inner"])
    def test_found(self, registry, name):
        """By entry point, by module and attribute, and inside of a class."""
        assert registry.find(name) is Shout

    def test_installed_ones_by_default(self):
        """Without entry points of its own it looks among those that are installed."""
        assert StageRegistry().names() == sorted(StageRegistry().names())

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            (
                "shuot",
                (
                    'there is no stage "shuot"; did you mean "shout"?; installed: lost, odd, shout, silent; '
                    "a stage of your own is written module:attribute"
                ),
            ),
            (
                "",
                (
                    'there is no stage ""; installed: lost, odd, shout, silent; '
                    "a stage of your own is written module:attribute"
                ),
            ),
            ("lost", 'stage "lost" (my_stages:Lost) cannot be imported: AttributeError: '),
            ("odd", "stage \"odd\" is <class 'test_registry.Outer'>, which is no subclass of pipeline.Stage"),
            (
                "nowhere.at_all:X",
                'stage "nowhere.at_all:X": module nowhere.at_all cannot be imported: ModuleNotFoundError: ',
            ),
            (":Shout", 'stage ":Shout": module  cannot be imported: ValueError: '),
            (
                "my_stages:Shuot",
                'stage "my_stages:Shuot": module my_stages has no attribute Shuot; did you mean "Shout"?',
            ),
            (
                "my_stages:Outer.Iner",
                'stage "my_stages:Outer.Iner": module my_stages has no attribute Iner; did you mean "Inner"?',
            ),
            ("my_stages:", 'stage "my_stages:": module my_stages has no attribute '),
            ("my_stages:not_a_stage", 'stage "my_stages:not_a_stage" is <function Stage.feed at '),
            ("my_stages:attrs", "stage \"my_stages:attrs\" is <module 'attrs'"),
            ("my_stages:Plain", 'stage "my_stages:Plain": its Options is '),
            ("my_stages:Demanding", 'stage "my_stages:Demanding": its option mark has no default'),
            (
                "my_stages:Mistyped",
                "stage \"my_stages:Mistyped\": a type in its Options is unknown at run time: name 'Marc'",
            ),
        ],
    )
    def test_not_found(self, registry, name, message):
        """One line that names the stage and says what is wrong, with the nearest right name."""
        with pytest.raises(RegistryError) as caught:
            registry.find(name)
        assert str(caught.value).startswith(message)
        assert "\n" not in str(caught.value)

    def test_module_that_fails(self, registry, tmp_path, monkeypatch):
        """Whatever a module raises while it is imported becomes one line."""
        (tmp_path / "broken_stages.py").write_text("raise RuntimeError('no licence\\nfound')")
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(RegistryError, match=r"^[^\n]*broken_stages cannot be imported: RuntimeError: no licence$"):
            registry.find("broken_stages:X")


class TestDescribing:
    """What ``callahead stages`` lists."""

    def test_documented(self, registry):
        """The docstring's first line, the flows, and each option with its default."""
        info = registry.describe("shout")
        assert (info.name, info.summary, info.takes, info.gives) == (
            "shout",
            "Makes text louder.",
            Flow.ITEMS,
            Flow.ITEMS,
        )
        assert info.options == {"mark": "!", "times": 1}

    def test_undocumented(self, registry):
        """A stage without a docstring has no summary; that of its parent would be a lie."""
        info = registry.describe("silent")
        assert (info.summary, info.gives, info.options) == ("", Flow.BYTES, {})

    def test_unknown(self, registry):
        """A name that leads nowhere is the same error as anywhere."""
        with pytest.raises(RegistryError, match='did you mean "shout"'):
            registry.describe("shoot")


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [("role_dedupe", ["role_dedup", "x"], '; did you mean "role_dedup"?'), ("zzz", ["role_dedup"], ""), ("a", [], "")],
)
def test_nearest(name, known, hint):
    """A near name is offered, and nothing where none is near."""
    assert nearest(name, known) == hint
