"""Service levels: positional, frozen, refused in one line; and their words."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import passcal as pc
from passcal.spec.sla import Target
from passcal.targets import read_target, read_targets, written

WORDS = {
    "ttft:p99<=500": pc.Sla("ttft", 0.99, 500),
    "itl:mean<=20": pc.Sla("itl", "mean", 20),
    " tpot : p99.9 <= 2.5 ": pc.Sla("tpot", 0.999, 2.5),
    "e2e:p999<=1e4": pc.Sla("e2e", 0.999, 10_000),
    "queue:p50<=0": pc.Sla("queue", 0.5, 0),
    "ttft:p5<=1": pc.Sla("ttft", 0.05, 1),
    "ttft:p100<=1": pc.Sla("ttft", 1, 1),
    "ttft:max<=1": pc.Sla("ttft", 1, 1),
    "throughput_rps>=8": pc.Floor("throughput_rps", 8),
    "output_tokens_per_s>=1.5e3": pc.Floor("output_tokens_per_s", 1500),
    "output_tokens_per_s_per_gpu>=900": pc.Floor("output_tokens_per_s_per_gpu", 900),
}


@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_a_target(word: str):
    assert read_target(word) == WORDS[word]
    assert read_target(written(WORDS[word])) == WORDS[word]


LEVELS = st.one_of(st.just("mean"), st.integers(1, 1000).map(lambda k: k / 1000))
SLAS = st.builds(pc.Sla, st.sampled_from(["ttft", "itl", "tpot", "e2e", "queue"]), LEVELS, st.integers(0, 10**6))
FLOORS = st.builds(pc.Floor, st.sampled_from(["throughput_rps", "output_tokens_per_s"]), st.integers(0, 10**6))


@given(st.one_of(SLAS, FLOORS))
def test_words_lose_nothing(target: Target):
    assert read_target(written(target)) == target


@pytest.mark.parametrize("spec", [pc.Sla("ttft", 0.99, 500), pc.Floor("throughput_rps", 8)])
def test_targets_are_values(spec: Target):
    for other in (copy.deepcopy(spec), pickle.loads(pickle.dumps(spec)), spec.model_copy()):
        assert other == spec and hash(other) == hash(spec)
    with pytest.raises(ValueError, match="frozen"):
        spec.metric = "itl"  # type: ignore[assignment,misc]


REFUSED = {
    lambda: pc.Sla("ttf", 0.99, 500): "Sla.metric='ttf'",
    lambda: pc.Sla("ttft", 0, 500): "Sla.quantile=0: must be above 0 and at most 1",
    lambda: pc.Sla("ttft", 99, 500): "Sla.quantile=99",
    lambda: pc.Sla("ttft", "p99", 500): "Sla.quantile='p99'",
    lambda: pc.Sla("ttft", True, 500): "Sla.quantile=True",
    lambda: pc.Sla("ttft", float("nan"), 500): "Sla.quantile=nan",
    lambda: pc.Sla("ttft", 0.99, -1): "Sla.limit_ms=-1",
    lambda: pc.Sla("ttft", 0.99, float("inf")): "Sla.limit_ms=inf",
    lambda: pc.Sla("ttft", 0.99): "Sla.limit_ms=None",
    lambda: pc.Sla("ttft", 0.99, 500, limit=3): "Sla has no option 'limit'",
    lambda: pc.Floor("ttft", 3): "Floor.metric='ttft'",
    lambda: pc.Floor("throughput_rps", -3): "Floor.limit=-3",
    lambda: read_targets(["itl:mean<=20", "ttft<=500"]): "sla.1='ttft<=500': must be as ttft:p99<=500",
    lambda: read_targets("ttft:p99<=much"): "sla.0='ttft:p99<=much': what follows the sign must be a number",
    lambda: read_targets("ttft:p0<=5"): "sla.0.quantile=0.0: must be above 0",
    lambda: read_targets("ttft:p101<=5"): "sla.0.quantile=1.01",
    lambda: read_targets("ttft:p1234<=5"): "sla.0.quantile=12.34",
    lambda: read_targets("ttft:often<=5"): "sla.0.quantile='often'",
    lambda: read_targets("color:p99<=5"): "sla.0.metric='color'",
    lambda: read_targets("itl>=5"): "sla.0.metric='itl'",
    lambda: read_targets([{"metric": "itl", "quantile": 0.5, "limit_ms": 5, "x": 1}]): "sla.0 has no option 'x'",
    lambda: read_targets([{"metric": "throughput_rps", "limit": -5}]): "sla.0.limit=-5",
    lambda: read_targets([5]): "sla.0=5: must be as ttft:p99<=500",
    lambda: read_targets({3: 4}): "sla.0={3: 4}: must be as",
}


@pytest.mark.parametrize("ask", REFUSED, ids=REFUSED.values())
def test_refusals(ask):
    with pytest.raises(pc.SpecError) as caught:
        ask()
    assert REFUSED[ask] in str(caught.value) and len(str(caught.value)) < 200 and "\n" not in str(caught.value)
