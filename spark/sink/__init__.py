"""The sink: rows of a DataFrame become records of topics, in a batch write or in each micro-batch of a stream.

Idea: exactly once by staging. Tasks stage their rows, invisible to readers, and tell the driver what they staged; the
driver commits all of it in one decision of the broker, under a name and a rising number. A committed number is never
committed again, whichever of tasks, driver and broker died meanwhile. `delivery=at-least-once` sends the rows at once
instead.
"""
