"""Settings: which source wins, what each value reads, and what a mistake is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from penstock.config import FIELDS, PREFIX, InvalidConfig, load


def file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return path


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(tmp_path: Path) -> None:
    path = file(tmp_path, 'drain_s = "1s"\nlazy_s = "0.5s"\ntimeout_s = "7s"')
    environ = {"PENSTOCK_DRAIN_S": "2s", "PENSTOCK_LAZY_S": "750ms"}
    loaded = load({"drain_s": "3s"}, environ=environ, path=path)
    assert (loaded.config.drain_s, loaded.source("drain_s")) == (3.0, "flag --set drain_s")
    assert (loaded.config.lazy_s, loaded.source("lazy_s")) == (0.75, "environment PENSTOCK_LAZY_S")
    assert (loaded.config.timeout_s, loaded.source("timeout_s")) == (7.0, f"file {path}")
    assert (loaded.config.handover_s, loaded.source("handover_s")) == (10.0, "default")


def test_every_setting_has_a_sentence_and_can_come_from_each_source(tmp_path: Path) -> None:
    texts = {str: "x", float: "2s", int: "70000", bool: "yes", list: "unix:///a,tcp://127.0.0.1:0"}
    in_file = {str: '"x"', float: '"2s"', int: "70000", bool: "true", list: '["unix:///a"]'}
    chosen = {"log_level": "error", "log_format": "json"}
    for sourced in load(environ={}).values:
        assert sourced.about.endswith(".")
        given = chosen.get(sourced.name) or texts[type(sourced.value)]
        variable = f"{PREFIX}{sourced.name.upper()}"
        assert load({sourced.name: given}, environ={}).source(sourced.name).startswith("flag")
        assert load(environ={variable: given}).source(sourced.name) == f"environment {variable}"
        in_file = (
            "true" if isinstance(sourced.value, bool) else f'["{given}"]' if isinstance(sourced.value, list) else ""
        )
        path = file(tmp_path, f"{sourced.name} = " + (in_file or (given if given.isdigit() else f'"{given}"')))
        assert load(environ={}, path=path).source(sourced.name) == f"file {path}"


def test_sizes_times_lists_and_switches_are_read_as_people_write_them() -> None:
    environ = {
        "PENSTOCK_MAX_FRAME_BYTES": "1MB",
        "PENSTOCK_GROUP_EXPIRY_S": "2d",
        "PENSTOCK_LISTEN": "unix:///a, tcp://127.0.0.1:0",
        "PENSTOCK_ADVERTISE": "tcp://broker.example:7070,tcp://10.0.0.7:7070",
        "PENSTOCK_INSECURE": "on",
    }
    config = load(environ=environ).config
    assert (config.max_frame_bytes, config.group_expiry_s, config.insecure) == (1 << 20, 172800.0, True)
    assert config.listen == ["unix:///a", "tcp://127.0.0.1:0"]
    assert config.advertise == ["tcp://broker.example:7070", "tcp://10.0.0.7:7070"]


def test_an_unknown_key_in_the_file_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    path = file(tmp_path, 'lisen = ["unix:///a"]')
    with pytest.raises(InvalidConfig) as caught:
        load(environ={}, path=path)
    assert caught.value.message == f"{path}: unknown key 'lisen': did you mean 'listen'?"


def test_a_key_like_no_other_is_answered_with_all_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig) as caught:
        load(environ={}, path=file(tmp_path, "zzz = 1"))
    assert all(name in caught.value.message for name in FIELDS)


def test_an_unknown_name_on_the_command_line_is_named_too() -> None:
    with pytest.raises(InvalidConfig, match="--set drain: unknown key 'drain': did you mean 'drain_s'"):
        load({"drain": "1"}, environ={})


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("drain_s", "soon", "'soon' is not a time"),
        ("max_frame_bytes", "-1MB", "'-1MB' is not a size"),
        ("board_rows", "many", "Expected `int`"),
        ("keeper_timeout_s", "0.5s", ">= 1.0"),
        ("board_rows", "0", ">= 8"),
        ("max_schedules", "-5", "below 0"),
        ("max_frame_bytes", "0", ">= 65536"),
        ("data", "", "length >= 1"),
        ("drain_s", "5", "a number without a unit: write 5s"),
        ("drain_s", "nan", "'nan' is not a time"),
        ("insecure", "perhaps", "Expected `bool`"),
        ("log_level", "loud", "it is none of debug, info, warning, error"),
    ],
)
def test_a_value_that_cannot_be_used_names_source_key_and_reason(name: str, text: str, says: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        load(environ={f"PENSTOCK_{name.upper()}": text})
    assert caught.value.message.startswith(f"environment PENSTOCK_{name.upper()}: {name} = {text!r} cannot be used: ")
    assert says in caught.value.message


def test_a_value_of_the_wrong_kind_in_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="listen = 7 cannot be used"):
        load(environ={}, path=file(tmp_path, "listen = 7"))


def test_a_time_in_the_file_has_its_unit_as_everywhere(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"drain_s = 5 cannot be used: '5' is a number without a unit"):
        load(environ={}, path=file(tmp_path, "drain_s = 5"))
    assert load(environ={}, path=file(tmp_path, "drain_s = 0")).config.drain_s == 0


def test_only_the_file_of_the_user_may_be_missing(tmp_path: Path) -> None:
    assert load(environ={"XDG_CONFIG_HOME": str(tmp_path)}).source("data") == "default"
    for given in (
        {"path": tmp_path / "no.toml", "environ": {}},
        {"environ": {"PENSTOCK_CONFIG": str(tmp_path / "no.toml")}},
    ):
        with pytest.raises(InvalidConfig, match="there is no configuration file"):
            load(**given)  # type: ignore[arg-type]


def test_the_file_of_the_user_is_found_below_xdg_config_home(tmp_path: Path) -> None:
    (tmp_path / "penstock").mkdir()
    path = file(tmp_path / "penstock", "board_rows = 16")
    loaded = load(environ={"XDG_CONFIG_HOME": str(tmp_path)})
    assert (loaded.config.board_rows, loaded.source("board_rows")) == (16, f"file {path}")


def test_a_file_that_is_no_toml_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"cannot read the configuration file .*; texts, times"):
        load(environ={}, path=file(tmp_path, "= ="))


def test_defaults_follow_the_xdg_directories() -> None:
    config = load(environ={"XDG_STATE_HOME": "/state", "XDG_RUNTIME_DIR": "/run/user/7"}).config
    assert (config.data, config.listen) == ("/state/penstock", ["unix:///run/user/7/penstock/broker.sock"])
    config = load(environ={"HOME": "/home/eve", "XDG_STATE_HOME": "relative"}).config
    assert config.data == "/home/eve/.local/state/penstock"


def test_variables_that_look_like_settings_and_are_none_are_found() -> None:
    assert load(environ={"PENSTOCK_LISEN": "x", "PENSTOCK_URL": "mem://"}).strangers == ["PENSTOCK_LISEN"]
