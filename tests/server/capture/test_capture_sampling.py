"""Which requests are captured."""

import pytest

from server.capture.sampling import Sampler


@pytest.mark.parametrize(
    ("patterns", "model", "wanted"),
    [
        (["*"], "m", True),
        (["*"], None, True),
        (["qwen*", "demo-7b"], "qwen3-8b", True),
        (["qwen*", "demo-7b"], "demo-7b", True),
        (["qwen*"], "Qwen3", False),
        (["qwen*"], None, False),
        ([], "m", False),
    ],
)
def test_models(patterns, model, wanted):
    """One of the patterns must match, case and all."""
    assert Sampler(patterns, 1.0).wants(model, "r") is wanted


def test_the_share_is_kept_and_each_id_has_one_fate():
    """A fifth of many ids is a fifth; asking again changes nothing; a larger share contains a smaller one."""
    ids = [f"req_{number}" for number in range(5000)]
    fifth = [each for each in ids if Sampler(["*"], 0.2).wants("m", each)]
    assert 900 < len(fifth) < 1100
    assert fifth == [each for each in ids if Sampler(["*"], 0.2).wants("other", each)]
    assert all(Sampler(["*"], 0.3).wants("m", each) for each in fifth)


@pytest.mark.parametrize(("sample", "wanted"), [(1.0, True), (0.0, False)])
def test_all_and_none(sample, wanted):
    """1 is every request, 0 is none."""
    assert all(Sampler(["*"], sample).wants("m", str(number)) is wanted for number in range(500))
