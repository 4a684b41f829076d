"""Tries an installed penstock, outside the repository: a broker is served, a record sent and fetched, a task done."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import penstock


def main(place: Path) -> None:
    command = [str(Path(sys.executable).with_name("penstock"))]
    address = f"unix://{place}/s"
    assert subprocess.run([*command, "--version"], capture_output=True, check=True, text=True).stdout.strip()
    served = subprocess.Popen(
        [*command, "serve", "--data", str(place / "data"), "--listen", address, "--json"], stdout=subprocess.PIPE
    )
    try:
        assert served.stdout is not None
        assert json.loads(served.stdout.readline())["event"] == "ready"
        with penstock.connect(address) as client:
            client.create_topic("tried")
            with client.producer("tried") as producer:
                producer.send(b"sent")
            with client.consumer("tried", group="g", start="earliest") as consumer:
                assert [each.value for each in consumer.fetch(wait=10.0)] == [b"sent"]
                consumer.commit()
            with client.worker("tried", group="work") as worker:
                (task,) = worker.fetch(wait=10.0)
                task.ack()
    finally:
        served.terminate()
        assert served.wait(60) == 0
    print(
        f"tried: penstock {penstock.__version__} of {Path(penstock.__file__).parent}, Python {sys.version.split()[0]}"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
        main(Path(directory))
