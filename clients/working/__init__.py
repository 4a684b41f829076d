"""Working: leases as a worker gets, holds, extends and settles them."""
