"""Hypothesis draws the same examples in every run, and leaves nothing behind."""

from hypothesis import settings

settings.register_profile("passcal", derandomize=True, database=None, deadline=None, max_examples=60)
settings.register_profile("deep", parent=settings.get_profile("passcal"), max_examples=1000)
settings.load_profile("passcal")
