"""The words study files are written with: types and what each of them must be."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

from pisces.explain import known
from pisces.study.measures import MEASURES

T = TypeVar("T")


def _measure(name: str) -> str:
    return known(name, MEASURES, "a measure")


MeasureName = Annotated[str, AfterValidator(_measure)]
Threshold = Annotated[
    str,
    Field(pattern=r"^(>=|<=) -?\d+(\.\d+)?$", description="such as '>= 1.2' or '<= 0.01'"),
]


def _change(text: str) -> str:
    if text.partition("=")[0].strip() in ("seed", "protocol"):
        raise ValueError(
            "a study sets seed and protocol itself: use a variant's protocol, or first_seed and "
            f"--seeds, not {text!r}"
        )
    return text


Change = Annotated[str, AfterValidator(_change)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")]


def _listed(said: Any) -> Any:
    return said if isinstance(said, list) else [said]


def _each_once(said: list[T]) -> list[T]:
    if not said or len(set(said)) < len(said):
        raise ValueError(f"must name at least one, and each once, not {said}")
    return said


Several = Annotated[list[T], BeforeValidator(_listed), AfterValidator(_each_once)]  # or just one
