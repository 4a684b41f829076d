"""Facts of the machine: what an interpreter says of how it was built."""

from __future__ import annotations

import subprocess
import sys
import sysconfig

import pytest

from perf.lab import machine


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("'--enable-optimizations' '--with-lto'", "PGO and LTO"),
        ("'--with-lto=thin'", "LTO"),
        (None, "without PGO and LTO"),
    ],
)
def test_an_interpreter_tells_its_flags(arguments, said, monkeypatch):
    monkeypatch.setattr(sys, "base_prefix", "/opt/python")
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: arguments)
    assert machine.build() == said


def test_one_of_the_distribution_tells_its_package(monkeypatch):
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    told = subprocess.CompletedProcess([], 0, stdout="3.11.2-6")
    monkeypatch.setattr(subprocess, "run", lambda command, **how: told)
    assert machine.build() == "package 3.11.2-6"

    def missing(command, **how):
        raise FileNotFoundError(command[0])

    monkeypatch.setattr(subprocess, "run", missing)
    assert machine.build() == "package of this distribution"


def test_a_call_takes_between_a_nanosecond_and_ten_microseconds(monkeypatch):
    monkeypatch.setattr(machine, "CALLS", 1000)
    assert 1 < machine.call_ns() < 10_000
