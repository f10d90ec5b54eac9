"""The documents name everything that a user can set, see or be told."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import attrs
import pytest

from pipeline.errors import StreamFailure
from pipeline.registry import StageRegistry
from pipeline.testing import make_stage, run_stage, text_chunk
from server.cli import main
from server.environment import SECTIONS
from server.errors import UpstreamErrorKind
from server.metrics import Metrics
from server.model_plans import ModelSettings
from stages.formats.declarations import FORMATS
from stages.formats.format import CallFormat, ReasoningFormat
from stages.reasoning_parser import ReasoningParser
from stages.refusals import Refusal
from stages.repairs import ALL_REPAIRS
from stages.text_parser import TextParser
from stages.tool_call_parser import ToolCallParser

DOCS = Path(__file__).parents[2] / "docs"
LINK = re.compile(r"\]\(([^)]+)\)")


def text_of(page: str) -> str:
    return (DOCS / page).read_text("utf-8")


def section_of(page: str, heading: str) -> str:
    """What stands below a heading, up to the next one of any level; empty where there is no such heading."""
    parts = re.split(r"^#+ (.*)$", text_of(page), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True)).get(heading, "")


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as a forge makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def keys() -> list[tuple[str, str]]:
    return [(section, field.name) for section, cls in SECTIONS.items() for field in attrs.fields(cls)]


@pytest.mark.parametrize(("section", "key"), keys())
def test_every_key_is_in_the_table_of_its_section(section, key):
    """`docs/config.md` has a row for each key of the settings classes."""
    headings = re.findall(rf"^#+ (`\[{section}\]`.*)$", text_of("config.md"), flags=re.MULTILINE)
    assert len(headings) == 1
    assert f"| `{key}` |" in section_of("config.md", headings[0])


@pytest.mark.parametrize("key", [field.name for field in attrs.fields(ModelSettings)])
def test_every_key_of_a_model_is_in_the_table(key):
    """`docs/config.md` has a row for each key that a pattern of models can set."""
    assert f"| `{key}` |" in section_of("config.md", "`[models]`: what is different for some models")


FORMAT_ROW = re.compile(r"^\| (`[^|]*`) \|.*\| `([^`]+)` \|$", flags=re.MULTILINE)


def format_rows(heading: str) -> list[tuple[tuple[str, ...], str]]:
    """The names and the sample of each row of a table of formats."""
    rows = FORMAT_ROW.findall(section_of("parsers.md", heading).replace(r"\|", "\N{BROKEN BAR}"))
    return [
        (tuple(re.findall(r"`([^`]+)`", names)), sample.replace("\N{BROKEN BAR}", "|").replace("↵", "\n"))
        for names, sample in rows
    ]


@pytest.mark.parametrize(
    ("heading", "kind"), [("Formats of tool calls", CallFormat), ("Formats of thoughts", ReasoningFormat)]
)
def test_every_name_of_a_format_is_in_its_table(heading, kind):
    """`docs/parsers.md` has a row for each built-in format, with all its names."""
    named = {name for names, _ in format_rows(heading) for name in names}
    assert named == {name for each in FORMATS if isinstance(each, kind) for name in each.names}


def parsed(parser: type[TextParser], name: str, sample: str, **request: Any) -> list[dict[str, Any]]:
    """The deltas that a parser makes of a sample, which comes character by character."""
    stage = make_stage(parser, options={"format": name}, request=request)
    chunks = [*map(text_chunk, sample), text_chunk("", finish="stop")]
    return [item.payload["choices"][0]["delta"] for item in run_stage(stage, chunks)]


@pytest.mark.parametrize(
    ("name", "sample"), [(name, sample) for names, sample in format_rows("Formats of tool calls") for name in names]
)
def test_the_sample_of_a_call_is_one(name, sample):
    """Each sample in the table of `docs/parsers.md` is a call, and nothing else, to the formats of its row."""
    deltas = parsed(ToolCallParser, name, sample, tools=[{"type": "function", "function": {"name": "tide"}}])
    fragments = [fragment for delta in deltas for fragment in delta.get("tool_calls", ())]
    assert [each["function"]["name"] for each in fragments if "id" in each] == ["tide"]
    assert json.loads("".join(each["function"]["arguments"] for each in fragments)) == {"port": "Bergen"}
    assert not any(delta.get("content") for delta in deltas)


@pytest.mark.parametrize(
    ("name", "sample"), [(name, sample) for names, sample in format_rows("Formats of thoughts") for name in names]
)
def test_the_sample_of_a_thought_is_one(name, sample):
    """Each sample in the other table is a thought and an answer."""
    deltas = parsed(ReasoningParser, name, sample)
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "Hm."
    assert "".join(delta.get("content") or "" for delta in deltas) == "Hi."


@pytest.mark.parametrize("option", [each for option in main.commands["serve"].params for each in option.opts])
def test_every_option_of_serve_is_in_the_config_page(option):
    """`docs/config.md` has a row for each command-line option of `serve`."""
    assert re.search(rf"^\| `{option}[` ]", text_of("config.md"), flags=re.MULTILINE)


@pytest.mark.parametrize("name", StageRegistry().names())
def test_every_stage_has_a_section_with_its_options(name):
    """There is a section for each built-in stage, with a row for each option and its default."""
    stage = StageRegistry().describe(name)
    if not StageRegistry().find(name).__module__.startswith("stages."):
        pytest.skip("installed by another package")
    if name in ALL_REPAIRS and not (DOCS / "repairs.md").exists():
        pytest.skip("repairs have a page of their own, once there is one")
    section = "".join(section_of(page.name, name) for page in DOCS.glob("*.md"))
    assert section
    for option, default in stage.options.items():
        assert re.search(rf"^\| `{option}` \|.*\| `{re.escape(str(default))}` \|", section, flags=re.MULTILINE)


@pytest.mark.parametrize("reason", list(Refusal))
def test_every_reason_is_explained(reason):
    """`docs/stages.md` has a row for each reason why a call is not announced, with the repair that the log names."""
    rows = section_of("stages.md", "Why a call is not announced").splitlines()
    [row] = [row for row in rows if row.startswith(f"| `{reason}` |")]
    assert (reason.repair or "") in row


def families() -> list[Any]:
    return [family for family in Metrics().registry.collect()]  # noqa: C416 - an iterator would be used up


@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_every_metric_is_in_the_deploy_page(family):
    """`docs/deploy.md` has a row for each metric, under the name that a scrape shows, with its type."""
    name = f"{family.name}_total" if family.type == "counter" else family.name
    assert f"| `{name}` | {family.type} |" in text_of("deploy.md")


def failure_codes(kind: type[StreamFailure] = StreamFailure) -> set[str]:
    found = {kind.code} if "code" in vars(kind) else set()
    return found.union(*map(failure_codes, kind.__subclasses__()))


@pytest.mark.parametrize(
    "code", sorted({each.value for each in UpstreamErrorKind} | failure_codes() - {"upstream_error"})
)
def test_every_error_code_is_in_the_clients_page(code):
    """`docs/clients.md` says of each error code what it means."""
    assert f"`{code}`" in section_of("clients.md", "Errors")


@pytest.mark.parametrize("page", sorted([*DOCS.glob("*.md"), DOCS.parent / "README.md"]), ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    """Links between the documents lead to files and headings that are there."""
    for link in LINK.findall(page.read_text("utf-8")):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name) if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target), link


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_every_module_that_is_named_is_there(page):
    """A path of a module, as `server/app.py`, is one of the tree's."""
    for path in re.findall(r"\b(?:pipeline|stages|server|tests)/[\w/.]+\.py\b", page.read_text("utf-8")):
        assert (DOCS.parent / path).exists(), path
