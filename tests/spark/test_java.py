"""Which Java is found, and what is said when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from penstock.spark import java
from penstock.spark.errors import MissingJava
from penstock.storage.errors import MissingLibrary, way_to_install


def install(home: Path, says: str) -> Path:
    """A Java of a version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    return home


@pytest.mark.parametrize("says", ['openjdk version "17.0.15" 2025-04-15', 'java version "25" 2025-09-16 LTS'])
def test_one_that_is_new_enough_is_taken_wherever_it_is(tmp_path, says):
    found = install(tmp_path / "one", says)
    assert java.home({"JAVA_HOME": str(found)}, tmp_path / "none") == found
    assert java.home({"PATH": str(found / "bin")}, tmp_path / "none") == found
    assert java.home({}, tmp_path) == found


def test_an_older_one_is_passed_over_for_the_next_place(tmp_path):
    old = install(tmp_path / "old", 'openjdk version "1.8.0_412"')
    new = install(tmp_path / "jvms" / "new", 'openjdk version "21.0.1"')
    assert java.home({"JAVA_HOME": str(old), "PATH": str(old / "bin")}, tmp_path / "jvms") == new


def test_a_link_on_the_path_leads_to_its_home(tmp_path):
    found = install(tmp_path / "one", 'openjdk version "17"')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(found / "bin" / "java")
    assert java.home({"PATH": str(tmp_path / "bin")}, tmp_path / "none") == found


def test_none_is_an_error_that_names_the_places_the_older_ones_and_the_way_out(tmp_path):
    old = install(tmp_path / "old", 'openjdk version "11.0.2"')
    install(tmp_path / "broken", "what?")
    with pytest.raises(MissingJava) as raised:
        java.home({"JAVA_HOME": str(old)}, tmp_path)
    assert "Java 17 or newer" in raised.value.message
    assert f"{old} has 11" in raised.value.message
    assert "broken" not in raised.value.message
    assert "apt install" in raised.value.message


def test_what_keeps_spark_from_starting_is_one_sentence_and_pyspark_comes_first(monkeypatch):
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    assert java.missing().endswith(f"not installed: {way_to_install('spark')}")
    with pytest.raises(MissingLibrary):
        java.check()


def test_where_nothing_is_missing_nothing_is_said(monkeypatch, tmp_path):
    found = install(tmp_path, 'openjdk version "17"')
    monkeypatch.setattr(java, "find_spec", lambda name: object())
    monkeypatch.setenv("JAVA_HOME", str(found))
    assert java.missing() == ""
    assert java.check() == found
