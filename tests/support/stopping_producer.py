"""As lent_producer.py; stopped by a signal in the middle of its nth batch, with its lock byte.

python stopping_producer.py N GRANT DIRECTORY ...
"""

import os
import runpy
import signal
import sys

from penstock.storage.files import File

last, writes, write = int(sys.argv.pop(1)), 0, File.pwritev


def stopping(self, buffers, position):
    """Stop half-way through the batch."""
    global writes
    if self.path.endswith(".segment"):
        writes += 1
        if writes == last:
            data = b"".join(bytes(each) for each in buffers)
            write(self, [data[:64]], position)
            os.kill(os.getpid(), signal.SIGSTOP)
            write(self, [data[64:]], position + 64)
            return
    write(self, buffers, position)


File.pwritev = stopping
runpy.run_path(os.path.join(os.path.dirname(__file__), "lent_producer.py"), run_name="__main__")
