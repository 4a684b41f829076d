"""The sink: rows of a DataFrame become records of topics, in a batch write or in each micro-batch of a stream.

Idea: exactly once by staging. Tasks stage their rows, which no reader sees, and hand the driver a message that names
what they staged; the driver commits all of it in one decision of the broker, under a name and a number that rises.
What was committed under a number is never committed again, whichever of tasks, driver and broker died meanwhile.
`delivery=at-least-once` sends the rows at once instead.
"""
