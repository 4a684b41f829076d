"""A producer process for a lent log: appends numbered records as long as it may, and says which were acknowledged.

python lent_producer.py GRANT DIRECTORY LOCK BOARD FIRST OUT     (GRANT: msgpack as hex; environment: PAUSE_S)
"""

import os
import sys
from threading import Event

import msgspec
from penstock.storage.batch import encode
from penstock.storage.files import Files
from penstock.storage.lending.attaching import attach
from penstock.storage.lending.grant import LogGrant

grant = msgspec.msgpack.decode(bytes.fromhex(sys.argv[1]), type=LogGrant)
directory, lock, board, first, out = sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), int(sys.argv[6])
appender = attach(grant, directory=directory, lock=lock, board=board, files=Files())
number, pause = first, Event()
while not appender.ended:
    batch = encode([b"%d" % number], producer_id=grant.producer_id, first_sequence=number)
    if appender.append(batch) is not None:
        os.write(out, b"%d\n" % number)
        number += 1
        pause.wait(float(os.environ.get("PAUSE_S", "0")))
