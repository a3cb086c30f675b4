"""SGLang's clauses, each broken alone: (what replaces the method, where the battery shows it)."""

import pytest

from tools.oracle.radix import RadixTree
from tools.oracle.requests import State
from tools.oracle.sglang import SglangScheduler as Right
from tools.oracle.sglang_admission import Verdict

from .breaking import shows


def decode_first(self):
    """S2 broken: a prefill only if nothing decodes."""
    self.publish_chunk()
    self.join_last()
    self.drop_finished()
    return self.plan_decode() or self.plan_prefill()


def joining_clears_nothing(self):
    """S5 broken: the flag stays when requests join."""
    full = self.full
    Right.join_last(self)
    self.full = full


def join_reversed(self):
    """S3 broken: those of the last batch join in reverse."""
    self.last.reverse()
    Right.join_last(self)


def leave_at_once(self):
    """S4 broken: leavers go before a prefill is planned."""
    Right.drop_finished(self)
    self.drop_leavers()


def sticky(self, running):
    """S5 broken: the flag stays when somebody goes."""
    full = self.full
    gone = Right.keep(self, running)
    self.full = full
    return gone


def never_full(self, plan):
    """S5 broken: a refusal for memory is tried again at every round."""
    return False


def promise_nothing(self, request):
    """S6 broken: running requests are promised nothing."""
    return 0


def unseen_too(self, request):
    """S4 broken: budgets know the token in flight."""
    return self.max_new(request) - request.promised


def charge_tokens(self, plan, request, new):
    """S6 broken: no page more a prompt."""
    Right.charge(self, plan, request, new)
    plan.now -= self.options.page_size
    plan.promised -= self.options.page_size


def charge_left(self, plan, request, new):
    """S6 broken: a resumed request is charged what is left only."""
    Right.charge(self, plan, request, new)
    if request.absorbed and request.computed + new == self.prompt(request):
        plan.promised -= request.absorbed


def hard_input(self, request, new, plan):
    """S7 broken: max_prefill_tokens is a limit with chunking too."""
    refusal = Right.refuse_by_rest(self, request, new, plan)
    return refusal or (Verdict.OTHER if plan.batch and self.ceil(new) >= plan.input else None)


def first_as_well(self, request, new, plan):
    """S8 broken: without chunking, the first prompt of a batch must be below max_prefill_tokens too."""
    refusal = Right.refuse_by_rest(self, request, new, plan)
    return refusal or (Verdict.OTHER if plan.chunk is None and self.ceil(new) >= plan.input else None)


def equal_fits(self, request, new, plan):
    """S8 broken: a need equal to the rest goes."""
    plan.promised -= 1
    refusal = Right.refuse_by_rest(self, request, new, plan)
    plan.promised += 1
    return refusal


def to_the_end(self, request, plan):
    """S9 broken: an entry longer than all goes to the end."""
    first = plan.entries is None
    Right.add_entry(self, request, plan)
    if not first:
        plan.entries.sort(key=lambda entry: entry[0])


def floor_partial(self, plan):
    """S10 broken: the partial's chunk is whole pages."""
    if plan.chunk is not None:
        plan.chunk = self.floor(plan.chunk)
    Right.continue_partial(self, plan)


def partial_last(self, plan):
    """S10 broken: the queue goes before the partial."""
    partial, self.partial = self.partial, None
    Right.scan(self, plan)
    if partial is not None and self.partial is None and not self.is_exhausted(plan):
        self.partial = partial
        Right.continue_partial(self, plan)
    elif partial is not None:
        self.partial = partial


def decode_despite_leavers(self):
    """S12 broken: memory that leavers still hold makes others retract."""
    self.drop_leavers()
    if not self.running:
        return []
    if self.decode_fits(self.running):
        self.decay()
    else:
        self.retract()
    return self.launch_rows(self.running)


def to_the_head(self, victim):
    """S13 broken: who is dropped waits before everybody."""
    Right.drop(self, victim)
    self.queue.insert(0, self.queue.pop())


def keep_ratio(self):
    """S13 broken: retraction leaves the ratio."""
    ratio = self.ratio
    Right.retract(self)
    self.ratio = ratio


def token_survives(self, request, now_ms):
    """S13 broken: a token in flight is not lost."""
    if request.state is State.PREEMPTED and len(request.token_ms) < self.max_new(request) - 1:
        request.token_ms.append(now_ms)
        return False
    return Right.receive(self, request, now_ms)


class NewestFirst(RadixTree):
    """S15 broken: the most recently touched leaf goes first."""

    def _tick(self):
        return -abs(super()._tick())


def newest_first(self, engine):
    Right.__init__(self, engine)
    self.tree = NewestFirst(self.options.page_size)


def no_lock(self, request, node, hit):
    """S15 broken: what running requests share may be evicted."""
    Right.hold(self, request, node, hit)
    self.tree.unlock(node)


BREAKS = {
    "S1 lookahead": ({"plans_ahead": False}, "alternating_overlap"),
    "S2 prefill first": ({"plan": decode_first}, "alternating_sync"),
    "S2 chunks": ({"publish_chunk": lambda self: None}, "fcfs_groups_sync"),
    "S3 order": ({"join_last": join_reversed}, "retract_equal_overlap"),
    "S4 leavers": ({"drop_finished": leave_at_once}, "few_slots_overlap"),
    "S4 seen": ({"left": unseen_too}, "kv_tight_overlap"),
    "S5 slots": ({"slots": lambda self: self.options.max_running_requests + 1 - len(self.running)}, "few_slots_sync"),
    "S5 cleared": ({"keep": sticky}, "kv_tight_sync"),
    "S5 joining": ({"join_last": joining_clears_nothing}, "lpm_tight_sync"),
    "S5 refusal": ({"refusal_fills": never_full}, "retract_sync"),
    "S6 mixed debit": ({"mixed_debit": lambda self: 0}, "mixed_sync"),
    "S6 promised": ({"expected": promise_nothing}, "kv_tight_sync"),
    "S6 ratio": ({"expected": lambda self, request: self.left(request)}, "retract_sync"),
    "S6 page": ({"charge": charge_tokens}, "retract_mixed_pages_sync"),
    "S6 clip": ({"clip": lambda self, outputs: outputs}, "promise_clipped_overlap"),
    "S6 resumed": ({"charge": charge_left}, "retract_often_sync"),
    "S7 soft": ({"refuse_by_rest": hard_input}, "soft_input_sync"),
    "S8 first": ({"refuse_by_rest": first_as_well}, "nochunk_sync"),
    "S8 strictly": ({"refuse_by_rest": equal_fits}, "kv_exact_sync"),
    "S8 floor": ({"cut_to_pages": Right.cut_exactly}, "pages_sync"),
    "S9 test": ({"refuse_by_entries": Right.refuse_by_rest}, "noradix_sync"),
    "S9 longest": ({"add_entry": to_the_end}, "noradix_burst_sync"),
    "S10 not floored": ({"continue_partial": floor_partial}, "pages_sync"),
    "S10 first": ({"continue_partial": lambda self, plan: None, "scan": partial_last}, "alternating_sync"),
    "S11 mixing": ({"mix": lambda self: []}, "mixed_sync"),
    "S12 leavers": ({"plan_decode": decode_despite_leavers}, "retract_often_overlap"),
    "S12 decay": ({"decay": lambda self: None}, "retract_sync"),
    "S12 idle": ({"idle": lambda self: False}, "retract_equal_overlap"),
    "S12 pages": ({"decode_need": lambda self, rows: len(rows)}, "retract_groups_sync"),
    "S13 order": ({"retraction_key": lambda self, request: 0}, "retract_mixed_pages_sync"),
    "S13 shortest": ({"retraction_key": lambda self, request: -len(request.token_ms)}, "retract_mixed_pages_sync"),
    "S13 tail": ({"drop": to_the_head}, "retract_often_sync"),
    "S13 ratio": ({"retract": keep_ratio}, "retract_often_sync"),
    "S13 lost": ({"receive": token_survives}, "retract_often_overlap"),
    "S14 interval": ({"defers": lambda self: False}, "interval_sync"),
    "S15 hit": ({"hit_limit": lambda self, request: 0}, "fcfs_groups_sync"),
    "S15 eviction": ({"__init__": newest_first}, "lpm_tight_sync"),
    "S15 lock": ({"hold": no_lock}, "lpm_tight_sync"),
    "S15 prompts": ({"publish_prompt": lambda self, request: None}, "lpm_tight_sync"),
    "S15 touch": ({"touch_waiting": lambda self: None}, "fcfs_groups_overlap"),
    "S16 lpm": ({"sort_by_match": lambda self: None}, "lpm_tight_sync"),
    "S16 together": ({"sort_by_match": lambda self: None}, "lpm_together_sync"),
    "S17 cut": ({"max_new_of": lambda self, lengths: lengths.osl}, "output_cut_sync"),
}


@pytest.mark.parametrize("clause", BREAKS)
def test_a_broken_clause_shows(clause: str):
    """Another answer, or none at all."""
    members, name = BREAKS[clause]
    assert shows(members, f"sglang_{name}")
