"""A device logs its readings to a log of its own, without a broker, and reads back what came after a moment.

python examples/device_logger.py [DIRECTORY]
"""

from __future__ import annotations

import json
import math
import sys
from datetime import UTC, datetime

import penstock

READINGS = 1_000


def main(directory: str = "./device-log") -> None:
    # Buffered: a batch is appended, and fsynced, every 100 records or every second, whichever comes first.
    with penstock.Log(directory, flush_records=100, flush_seconds=1.0) as log:
        before = datetime.now(UTC)
        for number in range(READINGS):
            log.write(json.dumps({"number": number, "celsius": round(20 + 5 * math.sin(number / 100), 2)}).encode())
        log.flush()

        log.seek(before)
        warmest = max((json.loads(record.value) for record in log), key=lambda reading: reading["celsius"])
        print(f"{log.end_offset} readings; the warmest of this run: {warmest}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
