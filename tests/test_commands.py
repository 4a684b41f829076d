"""The commands of pages about doors and running a broker: typed as they stand, beside a broker that serves as they say.

What the machine has not is replaced: ports by free ones, addresses of all interfaces by loopback, `/var/lib/penstock`
by the data of this broker. Commands of systemd, useradd and Docker are not run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.processes import spawn
from support.sources import ROOT
from test_docs import blocks, environment, run, short_directory  # noqa: F401

NOT_RUN = ("pip install", "xdg-open")
PASSWORD = "two teas please"


def commands(page: str, *numbers: int) -> list[str]:
    """The lines of blocks of a page, comments and what only sets up left out."""
    found = blocks(ROOT / page if page == "README.md" else ROOT / "docs" / page, "sh")
    lines = [line for number in numbers for line in found[number].splitlines()]
    return [re.sub(r"\s+#.*", "", line).strip() for line in lines if not line.startswith(NOT_RUN)]


def served(line: str, directory: str) -> str:
    """A command of a page that serves, with free places."""
    line = line.removesuffix("&").replace("/tmp/", f"{directory}/")
    return re.sub(r"(tcp|tls)://[\d.]+:\d+", r"\1://127.0.0.1:0", line)


@contextmanager
def broker(line: str, directory: str) -> Iterator[dict[str, Any]]:
    """With a broker that a page's command starts: its ready line."""
    command = ["bash", "-c", f"exec {served(line, directory)} --json"]
    process = spawn(
        command, signal.SIGTERM, cwd=directory, env=environment(directory), stdout=subprocess.PIPE, text=True
    )
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.stdout.close()
        process.wait(60)


def port_of(ready: dict[str, Any], door: str) -> str:
    return ready[door][0].rpartition(":")[2]


def typed(lines: Sequence[str], directory: str, timeout: float = 120) -> list[str]:
    """Type commands one after the other. Returns what each has said; all must end well."""
    said = []
    for line in lines:
        done = run(["bash", "-euc", line], directory, timeout=timeout)
        assert done.returncode == 0, f"{line}: {done.stdout}"
        said.append(done.stdout)
    return said


@pytest.fixture(autouse=True)
def tools() -> None:
    for tool in ("curl", "redis-cli", "openssl"):
        if shutil.which(tool) is None:
            pytest.skip(f"the pages use {tool}, which is not installed here")
    for library in ("uvloop", "hiredis", "uvicorn", "starlette"):
        pytest.importorskip(library, reason="the gateway needs the extra `gateway`")


def test_the_commands_for_http_clients_run(short_directory: str):  # noqa: F811
    serve, *lines = commands("http.md", 0, 1, 2, 3)
    with broker(serve, short_directory) as ready:
        lines = [re.sub(r"^curl (?!-N)", "curl -sS --fail-with-body ", line) for line in lines]
        lines = [line.replace('"delay_s": 5', '"delay_s": 0').replace("2027-", "2099-") for line in lines]
        lines = [line.replace("1700}", "0}") for line in lines]  # of a topic that has no record
        lines = [line.replace(":8080", f":{port_of(ready, 'http')}") for line in lines]
        lines = [f"{line} | grep -m 1 data" if line.startswith("curl -N") else line for line in lines]
        said = typed(lines, short_directory)
    assert "two teas" in said[1]
    assert "two teas" in said[3]
    assert "two teas" in next(text for text, line in zip(said, lines, strict=True) if "curl -N" in line)
    assert sum("sent" in text for text in said) == 1


def test_the_commands_for_redis_clients_run(short_directory: str):  # noqa: F811
    serve, *lines = commands("resp.md", 0, 3)
    with broker(serve, short_directory) as ready:
        ids: list[str] = []
        said = []
        for line in lines:
            line = line.replace("-p 6380", f"-p {port_of(ready, 'resp')}").replace("1795000000000-0", "".join(ids))
            said += typed([line], short_directory)
            ids = ids or re.findall(r"\d{13}-\d+", said[-1]) if "XADD" in line else ids
    assert any("two teas" in text for text in said)
    assert said[-2].strip() == "1"


def test_the_commands_about_users_of_redis_run(short_directory: str):  # noqa: F811
    add, serve, ask = commands("resp.md", 1)
    serve_tls, ask_tls = commands("resp.md", 2)
    typed([f"echo '{PASSWORD}' | {add}", CERTIFICATE], short_directory)
    asked = f"export REDISCLI_AUTH='{PASSWORD}'; "
    for line, question, expected in ((serve, ask, "0"), (serve_tls, ask_tls, "PONG")):
        with broker(line, short_directory) as ready:
            question = question.replace("-p 6380", f"-p {port_of(ready, 'resp')}").replace(" --askpass", "")
            (said,) = typed([asked + question], short_directory)
            assert said.strip() == expected


CERTIFICATE = (
    "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 1 -subj /CN=127.0.0.1 "
    "-addext subjectAltName=IP:127.0.0.1 2>/dev/null"
)


def test_the_commands_of_the_console_run(short_directory: str):  # noqa: F811
    (serve,) = commands("console.md", 0)
    with broker(serve, short_directory) as ready:
        (said,) = typed([f"curl -sS --fail http://localhost:{port_of(ready, 'http')}/"], short_directory)
    assert "<title>" in said


def test_the_commands_of_the_first_page_for_other_clients_run(short_directory: str):  # noqa: F811
    add, ask = commands("README.md", 2)
    with broker(
        "penstock serve --data ./data --resp tcp://127.0.0.1:0 --http tcp://127.0.0.1:0", short_directory
    ) as at:
        add = add.replace("-p 6380", f"-p {port_of(at, 'resp')}")
        ask = ask.replace("curl ", "curl -sS --fail-with-body ").replace(":8080", f":{port_of(at, 'http')}")
        said = typed([add, ask], short_directory)
    assert re.fullmatch(r"\d{13}-0", said[0].strip())
    assert "two teas" in said[1]


def test_the_commands_about_metrics_run(short_directory: str):  # noqa: F811
    serve, scrape = commands("seeing.md", 0)
    with broker(f"{serve} --data ./data", short_directory) as ready:
        (said,) = typed([scrape.replace(":9464", f":{port_of(ready, 'metrics')}")], short_directory)
    assert "penstock_up 1" in said


def test_the_commands_about_metrics_for_users_run(short_directory: str):  # noqa: F811
    *users, serve = commands("seeing.md", 1)
    typed([CERTIFICATE, *users], short_directory)
    with broker(f"{serve} --data ./data", short_directory) as ready:
        url = f"https://127.0.0.1:{port_of(ready, 'metrics')}/metrics"
        curl = f"curl -sS --cacert cert.pem {url}"
        alone, shown = typed([curl, f'{curl} -H "authorization: Bearer $(cat prometheus.token)"'], short_directory)
    assert "penstock_up 1" in shown
    assert "penstock_up" not in alone


def test_the_commands_of_operators_run(short_directory: str):  # noqa: F811
    looking, copying = commands("service.md", 1), commands("service.md", 2)
    assert looking[-1].startswith("penstock log repair")
    place = lambda line: line.replace("/var/lib/penstock", "./data").replace("/backups", "./backups")  # noqa: E731
    with broker("penstock serve --data ./data", short_directory):
        typed(["penstock topic create orders", "printf 'one\\ntwo\\n' | penstock produce orders"], short_directory)
        looking[1] = looking[1].replace("5s", "0.1s") + " | head -n 1"
        typed([place(line) for line in looking[:-1]], short_directory)
        typed([place(copying[0])], short_directory)
    said = typed([place(line) for line in (looking[-1], *copying[1:])], short_directory)
    assert said
    assert (Path(short_directory) / "data-restored").is_dir()


def test_the_commands_that_forward_and_ask_run(short_directory: str):  # noqa: F811
    pytest.importorskip("duckdb", reason="penstock sql needs the extra `sql`")
    (forward,) = commands("spool.md", 0)
    program = (
        "import penstock; spool = penstock.Spool('./spool'); "
        "spool.send_many('flights', [b'UA 1545', b'AA 1141']); spool.close()"
    )
    with broker("penstock serve --data ./data --listen tcp://127.0.0.1:0", short_directory) as ready:
        url = next(place for place in ready["listen"] if place.startswith("tcp"))
        forward = forward.replace("tcp://broker:4440", url) + " --until-empty"
        lines = [f"penstock topic create flights --url {url}", f'{sys.executable} -c "{program}"', forward]
        asked = [f"{line} --url {url}" for line in commands("sql.md", 0)]
        said = typed([*lines, *asked], short_directory)
    assert "2" in said[-2]
    assert os.path.isdir(f"{short_directory}/spool")
