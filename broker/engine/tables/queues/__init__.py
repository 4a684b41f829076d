"""Tables of queue groups: what their effects add up to on one partition."""
