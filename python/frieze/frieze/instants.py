"""Instants: exact points in time at which the file system can be read."""

from __future__ import annotations

import datetime as _datetime

_COUNTER_BITS = 12
_COUNTER_MASK = (1 << _COUNTER_BITS) - 1
_STAMP_MAX = (1 << 64) - 1
_EPOCH = _datetime.datetime(1970, 1, 1, tzinfo=_datetime.timezone.utc)


class Instant(int):
    """An exact instant: a reading of the servers' hybrid logical clock, in an integer that orders all changes.

    The upper 52 bits are microseconds since 1970, the lower 12 a counter. It prints as `hlc-` and 16 hexadecimal
    digits, and is made of that text, of an integer, or of a `datetime` with a zone, which means the last stamp of its
    microsecond.

    >>> import datetime
    >>> at = Instant(datetime.datetime(2026, 11, 30, 12, 0, tzinfo=datetime.timezone.utc))
    >>> at
    Instant('hlc-6617d2633d000fff')
    >>> at.time.isoformat()
    '2026-11-30T12:00:00+00:00'
    >>> Instant(str(at)) == at
    True
    """

    __slots__ = ()

    def __new__(cls, value: int | str | _datetime.datetime) -> Instant:
        if isinstance(value, _datetime.datetime):
            value = _stamp_of(value)
        elif isinstance(value, str):
            digits = value.removeprefix("hlc-")
            if digits == value or not 1 <= len(digits) <= 16 or set(digits) - set("0123456789abcdefABCDEF"):
                raise ValueError(f"{value!r} is not an exact stamp: expected hlc- and 1 to 16 hexadecimal digits")
            value = int(digits, 16)
        elif isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"an instant is an int, a str or a datetime, not {type(value).__name__}")
        if not 0 <= value <= _STAMP_MAX:
            raise ValueError(f"{value} is not a stamp: expected 0 to 2**64 - 1")
        return super().__new__(cls, value)

    @property
    def time(self) -> _datetime.datetime:
        """Its time in UTC, without the counter."""
        return _EPOCH + _datetime.timedelta(microseconds=self >> _COUNTER_BITS)

    @property
    def counter(self) -> int:
        """The logical part: orders changes within a microsecond."""
        return self & _COUNTER_MASK

    def __str__(self) -> str:
        return f"hlc-{int(self):016x}"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __repr__(self) -> str:
        return f"Instant('{self}')"

    def __reduce__(self):
        return Instant, (int(self),)


def _stamp_of(time: _datetime.datetime) -> int:
    if time.tzinfo is None or time.utcoffset() is None:
        raise ValueError(
            f"{time!r} has no time zone, so it is no instant: give it one, such as "
            f".replace(tzinfo=datetime.timezone.utc) or .astimezone()"
        )
    micros = (time - _EPOCH) // _datetime.timedelta(microseconds=1)
    if micros < 0:
        raise ValueError(f"{time!r} lies before 1970, when nothing was written")
    return min(micros << _COUNTER_BITS | _COUNTER_MASK, _STAMP_MAX)
