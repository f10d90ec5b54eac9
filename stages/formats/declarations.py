"""The formats of calls, and with those of thoughts all there are (spec, parsers, 6). The most used come first."""
# ruff: noqa: RUF001 - DeepSeek's tokens are spelled with fullwidth bars

from __future__ import annotations

from typing import Final

from stages.formats.format import CallFormat, Channels, Format, MarkedCalls
from stages.formats.gemma import GemmaCall
from stages.formats.json_body import STRAYS, JsonBody
from stages.formats.name_then_json import (
    NameThenJson,
    mistral_header,
    name_header,
    numbered_header,
    typed_header,
)
from stages.formats.pythonic import PythonCalls
from stages.formats.thought_declarations import THOUGHT_FORMATS
from stages.formats.xml_parameters import QUOTED_KEY, XmlParameters

__all__ = ["FORMATS"]

_OBJECTS: Final = JsonBody()
_OBJECTS_OR_MORE: Final = JsonBody(strays=f"{STRAYS};")

_CALLS: Final[tuple[CallFormat, ...]] = (
    MarkedCalls(
        names=("hermes", "qwen25", "qwen"),
        bodies=(JsonBody(("<tool_call>",)),),
        ends=("</tool_call>",),
    ),
    MarkedCalls(
        names=("qwen3_coder", "nemotron_nano", "qwen3_xml"),
        bodies=(
            XmlParameters(
                block=("<tool_call>", "</tool_call>"),
                may_lack_block=True,
                call=("<function=", ">"),
                call_end="</function>",
                parameter=("<parameter=", ">"),
                value_end="</parameter>",
                has_line_breaks=True,
            ),
        ),
        ends=("</tool_call>",),
        block_end="</tool_call>",
    ),
    Channels(
        names=("harmony", "gpt_oss", "openai", "openai_gptoss"),
        hides_tokens=True,
    ),
    MarkedCalls(
        names=("kimi_k2", "kimi_k25"),
        hides_tokens=True,
        bodies=(
            NameThenJson(
                sections=("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"),
                call="<|tool_call_begin|>",
                header=numbered_header,
                separator="<|tool_call_argument_begin|>",
                call_end="<|tool_call_end|>",
            ),
        ),
        ends=("<|tool_call_end|>", "<|tool_calls_section_end|>", "<|tool_call_section_end|>"),
    ),
    *(
        MarkedCalls(
            names=names,
            hides_tokens=True,
            bodies=(
                XmlParameters(
                    block=(f"<｜DSML｜{block}>", f"</｜DSML｜{block}>"),
                    call=('<｜DSML｜invoke name="', '">'),
                    call_end="</｜DSML｜invoke>",
                    parameter=('<｜DSML｜parameter name="', ">"),
                    key=QUOTED_KEY,
                    value_end="</｜DSML｜parameter>",
                ),
            ),
            ends=(f"</｜DSML｜{block}>",),
            block_end=f"</｜DSML｜{block}>",
        )
        for names, block in (
            (("deepseek_v4",), "tool_calls"),
            (("deepseek_v3_2",), "function_calls"),
        )
    ),
    *(
        MarkedCalls(
            names=names,
            hides_tokens=True,
            bodies=(
                NameThenJson(
                    sections=("<｜tool▁calls▁begin｜>",),
                    call="<｜tool▁call▁begin｜>",
                    header=header,
                    separator="<｜tool▁sep｜>",
                    call_end="<｜tool▁call▁end｜>",
                    is_fenced=header is typed_header,
                ),
            ),
            ends=("<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"),
        )
        for names, header in (
            (("deepseek_v3_1",), name_header),
            (("deepseek_v3",), typed_header),
        )
    ),
    MarkedCalls(
        names=("glm47", "glm45"),
        bodies=(
            XmlParameters(
                block=("<tool_call>", "</tool_call>"),
                call_end="</tool_call>",
                parameter=("<arg_key>", "</arg_key>"),
                value="<arg_value>",
                value_end="</arg_value>",
            ),
        ),
    ),
    MarkedCalls(
        names=("minimax_m2",),
        bodies=(
            XmlParameters(
                block=("<minimax:tool_call>", "</minimax:tool_call>"),
                call=('<invoke name="', '">'),
                call_end="</invoke>",
                parameter=('<parameter name="', ">"),
                key=QUOTED_KEY,
                value_end="</parameter>",
            ),
        ),
        ends=("</minimax:tool_call>",),
        block_end="</minimax:tool_call>",
    ),
    MarkedCalls(
        names=("gemma4",),
        hides_tokens=True,
        bodies=(GemmaCall(("<|tool_call>",)),),
        ends=("<tool_call|>",),
    ),
    MarkedCalls(
        names=("llama3_json", "llama3", "llama4_json"),
        hides_tokens=True,
        bodies=(JsonBody(("<|python_tag|>",), strays=f"{STRAYS};"),),
        bare={"{": _OBJECTS_OR_MORE},
    ),
    MarkedCalls(
        names=("mistral",),
        hides_tokens=True,
        id_style="mistral",
        bodies=(
            NameThenJson(
                call="[TOOL_CALLS]",
                header=mistral_header,
                separator="[ARGS]",
                others=("[CALL_ID]",),
                array=_OBJECTS,
            ),
        ),
    ),
    MarkedCalls(
        names=("pythonic", "llama4_pythonic", "llama4"),
        hides_tokens=True,
        bodies=(PythonCalls(("<|python_start|>",)),),
        ends=("<|python_end|>",),
        bare={"[": PythonCalls()},
    ),
    MarkedCalls(
        names=("nemotron_deci",),
        bodies=(JsonBody(("<TOOLCALL>",)),),
        ends=("</TOOLCALL>",),
    ),
    MarkedCalls(
        names=("granite",),
        hides_tokens=True,
        bodies=(JsonBody(("<|tool_call|>", "<tool_call>")),),
        ends=("</tool_call>",),
    ),
    MarkedCalls(
        names=("jamba",),
        bodies=(JsonBody(("<tool_calls>",)),),
        ends=("</tool_calls>",),
    ),
    MarkedCalls(
        names=("phi4", "phi4_mini_json"),
        bodies=(JsonBody(("functools",), is_array=True),),
    ),
    MarkedCalls(
        names=("xlam",),
        bodies=(JsonBody(("<tool_call>", "[TOOL_CALLS]")),),
        ends=("</tool_call>",),
        bare={"{": _OBJECTS, "[": _OBJECTS},
    ),
    MarkedCalls(
        names=("olmo3",),
        bodies=(PythonCalls(("<function_calls>",), is_list=False),),
        ends=("</function_calls>",),
    ),
    MarkedCalls(
        names=("functionary", "functionary_v3_1"),
        bodies=(NameThenJson(call="<function=", header=name_header, separator=">", call_end="</function>"),),
        ends=("</function>",),
    ),
    MarkedCalls(
        names=("default",),
        bodies=(JsonBody(("<TOOLCALL>", "<|python_tag|>")),),
        ends=("</TOOLCALL>",),
        bare={"{": _OBJECTS, "[": _OBJECTS},
        is_bare_at_lines=True,
    ),
)

FORMATS: Final[tuple[Format, ...]] = (*_CALLS, *THOUGHT_FORMATS)
"""All built-in formats; harmony is of both kinds."""
