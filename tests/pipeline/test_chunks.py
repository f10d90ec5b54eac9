"""Reading and editing chunks of any shape."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.chunks import (
    choice_key,
    choices_of,
    delta_of,
    encode_json,
    error_of,
    exact_payload,
    finish_reason_of,
    numbered_choices,
    parse_json,
    replace_choices,
    replace_delta,
    usable_index,
)
from pipeline.items import Chunk
from pipeline.testing import chunk, items_of, odd_payloads

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(), max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


class TestJson:
    """Any JSON in, the same JSON out."""

    @given(value=JSON_VALUES)
    def test_round_trip(self, value):
        """What is written is read back as the same value, lone surrogates included."""
        assert parse_json(encode_json(value)) == value

    @given(value=JSON_VALUES)
    def test_agrees_with_the_standard_library(self, value):
        """It reads what the standard library writes, escaped or not."""
        assert parse_json(json.dumps(value).encode()) == value

    @pytest.mark.parametrize(
        "text",
        [
            b'{"a":NaN,"b":[-Infinity,Infinity]}',
            b'{"a":1e999,"b":-1E+400}',
            b'{"a":1180591620717411303424,"b":NaN}',
            b'{"a":"\\ud800","b":"\\udfff\\ud800"}',
            '{"a":"é海🌊\u2028"}'.encode(),
            '{"a":"é海🌊\u2028","b":NaN}'.encode(),
            b'{"\\ud800":NaN}',
            b'{"a":{},"b":[],"c":[{}],"d":"","e":NaN}',
            b"[" * 1000 + b"]" * 1000,
            b'{"a":' * 900 + b"1" + b"}" * 900,
        ],
    )
    def test_what_orjson_refuses(self, text):
        """Constants, numbers beyond floats, lone surrogates and deep nesting are read and written as they came."""
        assert encode_json(parse_json(text)) == text

    @pytest.mark.parametrize(
        "data",
        [b"", b" ", b"{", b"{}{}", b"{'a':1}", b'"\xff"', b"\xef\xbb\xbf{}", b"nan", b"[" * 100_000, b"9" * 5000],
    )
    def test_no_json(self, data):
        """What is no JSON in UTF-8, or too deep or too long to be read, is a ValueError and nothing else."""
        with pytest.raises(ValueError):  # noqa: PT011 - the words are the parser's
            parse_json(data)

    @given(data=st.binary())
    def test_any_bytes(self, data):
        """Any bytes are either read or refused."""
        try:
            value = parse_json(data)
        except ValueError:
            return
        parse_json(encode_json(value))


class TestExactPayload:
    """The payload that an edit is built from."""

    @pytest.mark.parametrize("number", ["1180591620717411303424", "9" * 4000, "-9223372036854775809"])
    def test_long_integers(self, number):
        """An integer that orjson reads as a float is there with all its digits."""
        (item,) = items_of(b'data: {"seed":%b,"choices":[]}\n\n' % number.encode())
        assert exact_payload(item)["seed"] == int(number)
        assert number.encode() in encode_json(exact_payload(item))

    def test_digits_in_text(self):
        """Digits that are no number change nothing."""
        (item,) = items_of(b'data: {"id":"1180591620717411303424","a":[1.5]}\n\n')
        assert exact_payload(item) == item.payload

    def test_several_data_lines(self):
        """Where the bytes are not one JSON text, the payload is what it was."""
        (item,) = items_of(b'data: {"a":\ndata: 1180591620717411303424}\n\n')
        assert exact_payload(item) == item.payload

    def test_edited_chunk(self):
        """An edited chunk has no bytes to go back to."""
        edited = chunk({"a": 1}).edited({"a": 1180591620717411303424})
        assert exact_payload(edited) is edited.payload
        assert edited.raw is None


class TestReaders:
    """They answer for every shape."""

    @pytest.mark.parametrize(
        ("payload", "choices"),
        [
            ({}, []),
            ({"choices": None}, []),
            ({"choices": {}}, []),
            ({"choices": "x"}, []),
            ({"choices": [1, None]}, [1, None]),
        ],
    )
    def test_choices_of(self, payload, choices):
        """The list if it is one; its elements may be anything."""
        assert list(choices_of(payload)) == choices

    @pytest.mark.parametrize(
        ("choice", "delta"),
        [
            ({"delta": {"a": 1}}, {"a": 1}),
            ({}, None),
            ({"delta": None}, None),
            ({"delta": []}, None),
            (None, None),
            ([], None),
        ],
    )
    def test_delta_of(self, choice, delta):
        """An object or none."""
        assert delta_of(choice) == delta

    @pytest.mark.parametrize(
        ("choice", "key"),
        [
            ({"index": 2}, 2),
            ({"index": "a"}, "a"),
            ({"index": -1}, -1),
            ({}, 0),
            ({"index": None}, 0),
            ({"index": []}, 0),
        ],
    )
    def test_choice_key(self, choice, key):
        """Always something that can be told apart and hashed."""
        assert choice_key(choice) == key

    @pytest.mark.parametrize(
        ("value", "index"),
        [
            (0, 0),
            (7, 7),
            (-1, None),
            (None, None),
            ("0", None),
            (True, None),
            (1.0, None),
            ([], None),
            (1 << 80, 1 << 80),
        ],
    )
    def test_usable_index(self, value, index):
        """Only a non-negative integer is an index (spec, dispatch: Where Callahead deliberately differs)."""
        assert usable_index(value) == index

    def test_numbered_choices(self):
        """What is no object is passed over; an absent index is 0, an unusable one none."""
        choices = [{"index": 1}, None, {}, {"index": None}, "x", {"index": True}]
        assert [index for index, _ in numbered_choices({"choices": choices})] == [1, 0, None, None]

    @pytest.mark.parametrize(
        ("value", "reason"),
        [("stop", "stop"), ("anything", "anything"), ("", None), (None, None), (1, None), ([], None), ({}, None)],
    )
    def test_finish_reason_of(self, value, reason):
        """A text that is not empty."""
        assert finish_reason_of({"finish_reason": value}) == reason
        assert finish_reason_of({}) is None

    @pytest.mark.parametrize(
        ("payload", "error"),
        [
            ({"error": {"message": "m"}}, {"message": "m"}),
            ({"error": "m"}, "m"),
            ({"error": None}, None),
            ({}, None),
            ({"object": "error", "message": "m"}, {"object": "error", "message": "m"}),
            ({"object": "chat.completion.chunk"}, None),
        ],
    )
    def test_error_of(self, payload, error):
        """OpenAI's form and vLLM's; a null error is none."""
        assert error_of(payload) == error

    def test_odd_payloads(self):
        """No JSON value anywhere crashes a reader."""
        for payload in odd_payloads():
            error_of(payload)
            exact_payload(chunk(payload))
            for choice in choices_of(payload):
                delta_of(choice)
            for _, choice in numbered_choices(payload):
                hash(choice_key(choice))
                finish_reason_of(choice)


class TestWriters:
    """An edit copies the path down to what it changes."""

    def test_replace(self):
        """Everything else is kept, the order of the keys too, and the original is as it was."""
        payload = {"id": "a", "choices": [{"index": 0, "delta": {"role": "assistant"}, "logprobs": None}], "x": 1}
        before = json.dumps(payload)
        choice = replace_delta(payload["choices"][0], {})
        edited = replace_choices(payload, [choice])
        assert json.dumps(edited) == before.replace('{"role": "assistant"}', "{}")
        assert json.dumps(payload) == before
        assert isinstance(Chunk(payload, b"raw").edited(edited), Chunk)
