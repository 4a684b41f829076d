"""For tests of programs that use penstock: a broker in memory, its clock, and tasks that run in the calling thread.

    def test_my_tasks(penstock_broker):
        app.url = penstock_broker.url
        job = notify.send_in("10m", "UA 1545", late=12)
        penstock_broker.advance(600)
        penstock.testing.run_due(app)
        assert job.result() == "UA 1545 leaves 12 minutes late"

The pytest fixtures `penstock_broker` and `penstock_client` come with the package, as a plugin of pytest.
"""

from __future__ import annotations

from .clients.memory_broker import FakeClock, MemoryBroker
from .clients.tasks.inline import run_due

__all__ = ["FakeClock", "MemoryBroker", "run_due"]
