"""Background jobs with retries, a delay and a dead letter.

penstock worker jobs:app &      # both from this folder: a task is named by its module, here jobs
python jobs.py
"""

from __future__ import annotations

import penstock
from penstock import Retry

app = penstock.Tasks()


@app.task(queue="orders", retry=Retry(max_attempts=3, backoff=0.1), timeout=30)
def charge(order: str, cents: int) -> str:
    if penstock.current_task().attempt == 1:
        raise ConnectionError("the payment service did not answer")  # fails once, then works
    return f"{order}: {cents} cents charged"


@app.task(queue="orders")
def ship(order: str, address: str) -> None:
    if not address:
        raise ValueError(f"{order} has no address")  # fails each time, and is dead-lettered


def main() -> None:
    paid = charge.send("order-1", cents=1250)
    ship.send_in(0.5, "order-1", address="1 Main St")  # delivered half a second later
    lost = ship.send("order-2", address="")
    print(paid.result(timeout=30))
    try:
        lost.result(timeout=30)
    except penstock.Error as error:
        print(f"dead-lettered: {error}")
    for dead in app.client().dead_letters("orders", app.group):
        print(f"{dead.id} after {dead.attempt} attempts: {dead.reason}")


if __name__ == "__main__":
    main()
