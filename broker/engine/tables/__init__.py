"""Tables: effects, and what they add up to for one partition. Pure data; nothing here asks, answers or waits."""
