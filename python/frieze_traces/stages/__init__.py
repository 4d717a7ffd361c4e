"""The stages: each module makes tables of tables, and does no input or output.

The order is that of `pipeline.py`. Two rules hold in all of them: `/` is exact only for quotients below 2^53, so
multiples are made by `%` and shifts; and no column is called `op`.
"""

import ibis

from .. import contract

SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
PAGE = 4096


def floor_to(column, unit):
    """The largest multiple of `unit` that is not above it; exact for every 64-bit number that is not negative."""
    return column - column % unit


def total(condition, value=1):
    """Sum of `value` over the rows for which the condition holds; 0, not null, if there are none."""
    return ibis.ifelse(condition, value, 0).sum().coalesce(0).cast("int64")


def is_read(events):
    """The call read bytes."""
    return events.call == contract.READ


def is_write(events):
    """The call wrote bytes."""
    return events.call.isin([contract.WRITE, contract.APPEND])
