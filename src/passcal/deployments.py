"""Rows of a candidate table to deployments: which columns each kind of deployment has, and what a row's values of them make."""

from collections.abc import Mapping
from typing import Any

from passcal.errors import SpecError
from passcal.spec.deployment import Aggregated, Deployment, Disaggregated, Link
from passcal.spec.engine import ENGINES, EngineSpec, engine

__all__ = ["COLUMNS_OF", "OPTIONS", "PARTS", "POOLS", "deployed"]

OPTIONS = frozenset(name for model in ENGINES.values() for name in model.model_fields)
POOLS = ("prefill", "decode")
PARTS = (*POOLS, "link")  # what a column's name may begin with, before a dot
AROUND = {  # options of a deployment itself
    "aggregated": ("replicas", "routing"),
    "disaggregated": tuple(name for name in Disaggregated.model_fields if name not in (*PARTS, "encoder")),
}
COLUMNS_OF: Mapping[str, frozenset[str]] = {  # by kind
    "aggregated": OPTIONS | {"kind", *AROUND["aggregated"]},
    "disaggregated": frozenset(
        (
            *("kind", "backend", *AROUND["disaggregated"]),
            *(f"{pool}.{option}" for pool in POOLS for option in OPTIONS),
            *(f"link.{name}" for name in Link.model_fields),
        )
    ),
}


def kind_of(given: Mapping[str, Any]) -> str:
    """The kind of deployment of a row's values; no value is aggregated.

    Raises:
        SpecError: another kind.
    """
    kind = given.get("kind") or "aggregated"
    if kind not in COLUMNS_OF:
        raise SpecError(f"kind={kind!r:.40}: must be one of {', '.join(COLUMNS_OF)}, or empty; correct it")
    return str(kind)


def deployed(given: Mapping[str, Any]) -> Deployment:
    """Workers of a row.

    Args:
        given: values by column, without those that have none.

    Raises:
        SpecError: a column that this kind of deployment does not have, or a value out of range.
    """
    kind = kind_of(given)
    for name, value in given.items():
        if name not in COLUMNS_OF[kind]:
            raise SpecError(f"{name}={value!r:.40}: a row of kind={kind} has no such column; {remedy(name, kind)}")
    around = {name: given[name] for name in AROUND[kind] if name in given}
    if kind == "aggregated":
        options = {name: value for name, value in given.items() if name in OPTIONS}
        return Aggregated(engine(options.pop("backend", ""), **options), **around)
    if {"backend", "prefill.backend", "decode.backend"} <= set(given):
        raise SpecError(
            f"backend={given['backend']!r:.40}: prefill.backend and decode.backend say otherwise; leave it empty"
        )
    link = part_of(given, "link")
    return Disaggregated(
        prefill=pool_of(given, "prefill"),
        decode=pool_of(given, "decode"),
        link=Link(**link) if link else None,
        **around,
    )


def remedy(name: str, kind: str) -> str:
    """Where the value of a column might belong."""
    if kind == "disaggregated" and name in OPTIONS:
        return f"give prefill.{name} or decode.{name}"
    return "leave it empty there, or change kind"


def pool_of(given: Mapping[str, Any], pool: str) -> EngineSpec:
    """The engine of a pool, by the row's backend unless the pool has its own; what is wrong with it names the pool."""
    try:
        options: dict[str, Any] = {"backend": given.get("backend", "")} | part_of(given, pool)
        return engine(**options)
    except SpecError as error:
        raise SpecError(f"{pool}: {error}"[:199]) from None


def part_of(given: Mapping[str, Any], part: str) -> dict[str, Any]:
    """Values of the columns that begin so, by the rest of their names."""
    return {name[len(part) + 1 :]: value for name, value in given.items() if name.startswith(f"{part}.")}
