"""The format through its stage, without a server."""

from __future__ import annotations

import pytest
from my_formats import ARROWS

from pipeline import Chunk, RequestContext
from pipeline.testing import run_stage, text_chunk
from stages.formats.format import Format
from stages.text_parser import TextParser

REQUEST = {"messages": [], "tools": [{"type": "function", "function": {"name": "tide"}}]}


class Arrows(TextParser):
    """The stage, with the format already chosen."""

    @classmethod
    def format_of(cls, options: object) -> Format:  # noqa: ARG003 - the signature is given
        """Always the same."""
        return ARROWS


def read(text: str) -> tuple[str, str]:
    """The content and the arguments, from a text that comes character by character."""
    chunks = [*map(text_chunk, text), text_chunk("", finish="stop")]
    content = arguments = ""
    for item in run_stage(Arrows(None, RequestContext(REQUEST)), chunks):
        assert isinstance(item, Chunk)
        delta = item.payload["choices"][0]["delta"]
        content += delta.get("content") or ""
        arguments += "".join(each["function"]["arguments"] for each in delta.get("tool_calls") or ())
    return content, arguments


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('Wait. ->>tide {"port": "Bergen"}<<-', ("Wait. ", '{"port": "Bergen"}')),
        ("->>tide <<-", ("", "{}")),
        ("An arrow ->> to the right", ("An arrow ->> to the right", "")),
        ('->>tide {"port": "->>"}', ("", '{"port": "->>"}')),
    ],
)
def test_arrows_mark_calls(text: str, found: tuple[str, str]) -> None:
    """A call is found, whole or without arguments; what only looks like one stays text."""
    assert read(text) == found
