"""A producer process that appends by itself: sends numbered records, one after the other, and says which stand.

python direct_producer.py URL TOPIC LABEL COUNT HOOK     (COUNT 0: until it is killed)

HOOK: what happens in the middle of every hundredth append, between its index row and its batch: "" nothing, "stop" the
process stops itself, "fork" it has a child that keeps everything open for some seconds, "kill" it is killed.
"""

import os
import signal
import sys
from threading import Event

import penstock
from penstock.storage.files import File

url, topic, label, count, hook = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
appends = 0
pwritev = File.pwritev


def hooked(file: File, buffers: list, position: int) -> None:
    """As File.pwritev."""
    global appends
    if file.path.endswith(".segment"):
        appends += 1
        if appends == 100:
            happen()
    pwritev(file, buffers, position)


def happen() -> None:
    if hook == "stop":
        print("stops", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    elif hook == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif hook == "fork" and os.fork() == 0:
        Event().wait(3.0)
        os._exit(0)


File.pwritev = hooked  # type: ignore[method-assign]
with penstock.connect(url, timeout=8) as client, client.producer(topic, direct=True) as producer:
    number = direct = 0
    while not count or number < count:
        offset = producer.send(b"%s %d" % (label.encode(), number))
        print(offset, flush=True)
        number += 1
        direct += bool(producer.direct)
    print("direct", direct, flush=True)
