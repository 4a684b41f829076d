"""Working: a worker's leases, from request to settling."""
