"""All exit codes, and the errors that end in each.

Contract: a program may rely on these numbers; a new kind of failure gets a new number.
"""

from __future__ import annotations

OK = 0  # done; also when the reader of our output closed its end early
FAILED = 1  # the broker or the log refused, for a reason without a number of its own
USAGE = 2  # the command line or the configuration is wrong; nothing was tried
NOT_FOUND = 3  # no such topic, group, partition, offset or directory
UNAVAILABLE = 4  # the broker cannot be reached or did not answer in time; the same call may succeed later
DAMAGED = 5  # a log is damaged, or the demo found a difference
IN_USE = 6  # another process holds the directory or the address
FULL = 7  # no space left, or a limit of the broker is reached
INTERRUPTED = 130  # ^C, as shells say it

ERRORS = {
    USAGE: (
        "invalid_config",
        "invalid_argument",
        "invalid_input",
        "invalid_request",
        "invalid_url",
        "invalid_settings",
        "invalid_topic",
        "invalid_certificate",
        "invalid_users",
        "insecure_listen",
        "invalid_key",
        "invalid_peers",
    ),
    NOT_FOUND: (
        "unknown_topic",
        "unknown_group",
        "unknown_partition",
        "unknown_task",
        "unknown_schedule",
        "unknown_barrier",
        "unknown_counter",
        "out_of_bounds",
        "no_log",
        "missing_flights",
        "missing_java",
        "no_archive",
        "no_backup",
    ),
    UNAVAILABLE: (
        "unavailable",
        "timed_out",
        "no_broker",
        "no_leader",
        "not_leader",
        "board_unavailable",
        "read_failed",
    ),
    DAMAGED: ("corrupt", "bad_checksum", "poisoned"),
    IN_USE: ("already_open", "address_in_use", "group_active", "topic_exists", "target_in_use"),
    FULL: ("storage_full", "still_full", "limit_reached", "spool_full"),
}
"""The machine names of errors, by exit code; all others are FAILED."""

_CODES = {code: number for number, codes in ERRORS.items() for code in codes}


def of(error: BaseException) -> int:
    """The exit code of one of our errors: that of its nearest class with one."""
    for kind in type(error).__mro__:
        number = _CODES.get(kind.__dict__.get("code", ""))
        if number is not None:
            return number
    return FAILED
