"""Tests of the oracle alone: worked numbers of the clauses, the language, and recordings of the real engine."""
