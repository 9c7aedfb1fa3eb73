"""Checks of what callers pass: a wrong value raises `Usage` with its name, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from .errors import Usage


def check_text(what: str, text: object) -> None:
    """Raises `Usage` for a value that is no text, and for a text with half a character (a lone surrogate), which no URL and no name
    in a record can have."""
    if not isinstance(text, str):
        raise Usage(f"{what} is a text, not a value of type {type(text).__qualname__}; pass a str")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Usage(f"{what} has half a character (a lone surrogate): {text!r}") from None


def check_function(what: str, value: object) -> None:
    """Raises `Usage` for a value that cannot be called."""
    if value is not None and not callable(value):
        raise Usage(f"{what} is a function, not a value of type {type(value).__qualname__}")


def tool_names(option: str, given: object) -> frozenset[str]:
    """The names of a list. Raises `Usage` for a text, in which `in` would find each part as a name: `pay` in `search_and_pay`."""
    names = (
        list(cast("Iterable[object]", given))
        if isinstance(given, Iterable) and not isinstance(given, str | bytes)
        else None
    )
    if names is None or not all(isinstance(name, str) for name in names):
        raise Usage(f'{option} is a list of names of tools, such as ["search"], not {given!r}')
    return frozenset(cast("list[str]", names))


def check_list(what: str, given: object) -> None:
    """Raises `Usage` for a text, whose characters would be taken for the elements."""
    if isinstance(given, str | bytes):
        raise Usage(f"{what} are a list, not the text {given!r}: [{given!r}]")


def is_number(value: object) -> bool:
    """Whether a value is a number."""
    return isinstance(value, int | float)


def is_positive(value: object) -> bool:
    """Whether a value is a number above 0."""
    return isinstance(value, int | float) and value > 0
