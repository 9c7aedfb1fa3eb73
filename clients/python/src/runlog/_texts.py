"""Texts of values that JSON has no type for; the same as Pydantic's."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import enum
import math
import uuid
from pathlib import PurePath

from ._json import Json
from .errors import Invalid

_DAYS_A_YEAR = 365


class NoJson(Invalid):
    """A value, or a part of it at the path `place`, has no JSON."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.place = ""

    def inside(self, step: str) -> NoJson:
        """Returns the error with the path from the enclosing value."""
        self.place = step + self.place
        self.message = f"{self.why}, at ${self.place}"
        self.args = (self.message,)
        return self


def type_name(value: object) -> str:
    """The name of a value's type, with its module."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def text_of(value: object) -> Json:
    """The text of a value, or `{"base64": …}`. `None` for a type without a text form."""
    if isinstance(value, dt.datetime):
        if value != value:
            raise NoJson(f"{value} has no JSON")  # the NaT of pandas
        return f"{_date(value)}T{_time(value)}{_offset(value.utcoffset())}"
    if isinstance(value, dt.date):
        return _date(value)
    if isinstance(value, dt.time):
        return _time(value) + _offset(value.utcoffset())
    if isinstance(value, dt.timedelta):
        return _duration(value)
    if isinstance(value, decimal.Decimal | uuid.UUID | PurePath):
        return str(value)
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    return None


def key_text(key: object) -> str:
    """The text of a mapping's key. Raises `Invalid` for a key without one."""
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, bool):
        return "true" if key else "false"
    if key is None:
        return "None"
    if isinstance(key, int):
        return int.__repr__(key)
    if isinstance(key, float) and math.isfinite(key):
        return float.__repr__(key)
    if isinstance(key, enum.Enum):
        return key_text(key.value)
    text = text_of(key)
    if not isinstance(text, str):
        raise NoJson(f"a key of type {type_name(key)} has no text")
    return text


def _date(value: dt.date) -> str:
    return f"{value.year:04}-{value.month:02}-{value.day:02}"


def _time(value: dt.datetime | dt.time) -> str:
    micros = f".{value.microsecond:06}" if value.microsecond else ""
    return f"{value.hour:02}:{value.minute:02}:{value.second:02}{micros}"


def _offset(offset: dt.timedelta | None) -> str:
    if offset is None:
        return ""
    if not offset:
        return "Z"
    minutes = abs(offset) // dt.timedelta(minutes=1)
    return f"{'-' if offset < dt.timedelta(0) else '+'}{minutes // 60:02}:{minutes % 60:02}"


def _duration(value: dt.timedelta) -> str:
    """Uses years of 365 days, as Pydantic does."""
    sign, micros = "-" if value < dt.timedelta(0) else "", abs(value) // dt.timedelta(microseconds=1)
    seconds, micros = divmod(micros, 1_000_000)
    days, seconds = divmod(seconds, 86_400)
    years, days = divmod(days, _DAYS_A_YEAR)
    hours, minutes, seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
    fraction = f"{seconds}.{micros:06}".rstrip("0") if micros else str(seconds)
    date = "".join(f"{count}{unit}" for count, unit in ((years, "Y"), (days, "D")) if count)
    time = "".join(f"{count}{unit}" for count, unit in ((hours, "H"), (minutes, "M")) if count)
    if seconds or micros:
        time += f"{fraction}S"
    return f"{sign}P{date}{'T' + time if time else ''}" if date or time else "PT0S"
