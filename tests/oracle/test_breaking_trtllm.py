"""TensorRT-LLM's clauses, each broken alone: (what replaces the method, where the battery shows it)."""

import pytest

from tools.oracle.trtllm import TrtllmScheduler as Right

from .breaking import shows


def first_fit(self, room):
    """T1 broken: a misfit is passed over."""
    kept = []
    for request in self.active:
        if self.remaining(request) and self.reserved(request) <= room:
            room -= self.reserved(request)
            kept.append(request)
    return kept


def strictly(self, room):
    """T1 broken: a prompt that fits exactly does not."""
    return Right.keep_prompts(self, room - 1)


def without_leavers(self):
    """T1, T3 broken: leavers are no longer kept, nor counted."""
    kept = [request for request in self.active if not self.remaining(request) and not self.is_leaver(request)]
    return kept, self.pool.free - sum(self.reserved(request) for request in kept)


def first_started(self, position, end):
    """T2 broken: the first started one behind the misfit is paused."""
    return next((i for i in range(position, end) if self.active[i].blocks), None)


def not_itself(self, position, end):
    """T2 broken: a misfit never pauses itself."""
    return Right.victim(self, position + 1, end)


def only_for_rows(self, position, end):
    """T2 broken: a fresh misfit pauses nobody."""
    return Right.victim(self, position, end) if self.active[position].blocks else None


def leavers_need_nothing(self, request):
    """T2 broken: a leaver takes no row, so it is asked no block."""
    return 0 if self.is_leaver(request) and request.blocks else Right.next_blocks(self, request)


def partials_reserve(self, request):
    """T2 broken: a partial is asked a block as well."""
    return 1 if request.blocks and self.remaining(request) else Right.next_blocks(self, request)


def to_the_tail(self, request):
    """T12 broken: a paused request loses its place in the list."""
    given = Right.pause(self, request)
    self.active.remove(request)
    self.active.append(request)
    return given


def forget_outputs(self):
    """T12 broken: only the prompt is computed again."""
    paused = [request for request in self.active if request.preemptions and not request.blocks]
    Right.resume_paused(self)
    for request in paused:
        request.absorbed = 0


def stop_behind_a_cut(self, wanted, left):
    """T9 broken: nobody overtakes a cut prompt."""
    dealt = Right.deal_in_order(self, wanted, left)
    cut = next((i for i, tokens in enumerate(wanted) if dealt[i] < tokens), len(wanted))
    return [tokens if i <= cut else 0 for i, tokens in enumerate(dealt)]


def floor_all(self, wanted, left):
    """T9 broken: a remainder that fits is floored too."""
    dealt = []
    for tokens in wanted:
        dealt.append(self.floor(min(tokens, left)) or min(tokens, left))
        left -= dealt[-1]
    return dealt


def cut_pieces(self, wanted, left):
    """T9 broken: an equal piece may be cut to what is left."""
    dealt = Right.deal_equally(self, wanted, left)
    left -= sum(dealt)
    for i, tokens in enumerate(wanted):
        more = min(left, tokens - dealt[i])
        dealt[i], left = dealt[i] + more, left - more
    return dealt


def skip_misfits(self, prompts, left):
    """T10 broken: a prompt over the rest is passed over."""
    shares = []
    for request in prompts:
        tokens = self.remaining(request)
        if tokens <= left:
            shares.append((request, tokens))
            left -= tokens
    return shares


def never_reset(self, prompts, rows):
    """T6 broken: the counter of waits stays up."""
    waited = self.waited
    waits = Right.waits(self, prompts, rows)
    self.waited = max(waited, self.waited)
    return waits


def whole_prompts(self, prompts, rows):
    """T6 broken: whole prompts are summed instead of chunks."""
    return Right.waits(self, [(request, self.prompt(request)) for request, _ in prompts], rows)


def rows_wait_uncounted(self, prompts, rows):
    """T6 broken: the rows' tokens are left out."""
    return Right.waits(self, prompts, rows[:1])


BREAKS = {
    "T1 first fit": ({"keep_prompts": first_fit}, "guaranteed_tight_sync"),
    "T1 equal fits": ({"keep_prompts": strictly}, "guaranteed_equal_fit_sync"),
    "T1 full output": (
        {"total_blocks": lambda self, r: self.cover(r.lengths.isl + r.lengths.osl - 1)},
        "guaranteed_equal_fit_sync",
    ),
    "T1 prompt only": ({"total_blocks": lambda self, r: self.cover(r.lengths.isl)}, "guaranteed_tight_sync"),
    "T1 leavers": ({"keep_started": without_leavers}, "static_batch_overlap"),
    "T2 last": ({"victim": first_started}, "utilization_pauses_sync"),
    "T2 itself": ({"victim": not_itself}, "utilization_small_sync"),
    "T2 fresh too": ({"victim": only_for_rows}, "utilization_small_sync"),
    "T2 leavers": ({"next_blocks": leavers_need_nothing}, "utilization_pauses_overlap"),
    "T2 partials": ({"next_blocks": partials_reserve}, "utilization_pauses_sync"),
    "T3 batch": ({"considers_prompts": lambda self, kept: True}, "static_batch_sync"),
    "T4 budget": ({"budget": lambda self: self.options.max_num_tokens - 1}, "chunks_sync"),
    "T5 lookahead": ({"plans_ahead": False}, "chunks_overlap"),
    "T5 foreseen": ({"is_leaver": lambda self, request: False}, "chunks_overlap"),
    "T6 wait": ({"waits": lambda self, prompts, rows: False}, "batch_wait_sync"),
    "T6 reset": ({"waits": never_reset}, "batch_wait_sync"),
    "T6 chunks": ({"waits": whole_prompts}, "batch_wait_sync"),
    "T6 rows": ({"waits": rows_wait_uncounted}, "batch_wait_sync"),
    "T8 seats": ({"has_seat": lambda self: len(self.active) <= self.options.max_batch_size}, "few_seats_sync"),
    "T9 unit": ({"unit": lambda self: 1}, "chunk_unit_sync"),
    "T9 overtaking": ({"deal_in_order": stop_behind_a_cut}, "chunk_unit_sync"),
    "T9 whole remainder": ({"deal_in_order": floor_all}, "chunk_unit_sync"),
    "T9 equal": ({"deal_equally": Right.deal_in_order}, "equal_progress_sync"),
    "T9 pieces": ({"deal_equally": cut_pieces}, "equal_progress_sync"),
    "T10 skipping": ({"whole": skip_misfits}, "nochunk_sync"),
    "T11 whole prompt": (
        {"first_chunk_blocks": lambda self, r: max(1, len(r.blocks))},
        "utilization_bursts_sync",
    ),
    "T11 rows": ({"row_blocks": lambda self, request: 0}, "utilization_pauses_sync"),
    "T12 place": ({"pause": to_the_tail}, "utilization_pauses_sync"),
    "T12 outputs": ({"resume_paused": forget_outputs}, "utilization_pauses_sync"),
}


@pytest.mark.parametrize("clause", BREAKS)
def test_a_broken_clause_shows(clause: str):
    """Another answer, or none at all."""
    members, name = BREAKS[clause]
    assert shows(members, f"trtllm_{name}")
