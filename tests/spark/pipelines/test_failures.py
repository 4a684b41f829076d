"""What Spark makes of an error is turned back into the error."""

from __future__ import annotations

import pytest
from penstock.errors import PipelineFailed, UnknownTopic
from penstock.spark.pipelines.failures import explained

WORKER = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_STREAMING_ERROR]
Failed when Python streaming data source perform latestOffset: Traceback (most recent call last):
  File "/opt/python_streaming_source_runner.py", line 90, in latest_offset_func
    offset = reader.latestOffset()
penstock.broker.errors.Unavailable: the broker is starting
During handling of the above exception, another exception occurred:
penstock.broker.errors.UnknownTopic: no topic 'flights': create it first
 SQLSTATE: 38000
JVM stacktrace:
org.apache.spark.SparkException
"""


class StreamingQueryException(Exception):
    """As pyspark has it."""


StreamingQueryException.__module__ = "pyspark.errors.exceptions.captured"


def test_an_error_of_ours_in_a_worker_is_that_error():
    found = explained(StreamingQueryException(WORKER))
    assert (type(found), str(found)) == (UnknownTopic, "no topic 'flights': create it first")


def test_an_error_of_a_class_that_is_not_known_here_keeps_its_sentence():
    found = explained(StreamingQueryException("Traceback:\npenstock.later.errors.Unheard: the sky fell"))
    assert (type(found), str(found)) == (PipelineFailed, "the sky fell")


def test_another_error_of_spark_is_its_first_line():
    found = explained(StreamingQueryException("\n[NO_MEMORY] no memory left\nat org.apache.spark\n"))
    assert (type(found), str(found)) == (PipelineFailed, "Spark says: [NO_MEMORY] no memory left")


OURSELVES = """[STREAM_FAILED] Query [id = 1] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error
occurred. Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/opt/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
OSError: [Errno 28] No space left on device

=== Streaming Query ===
Identifier: [id = 1, runId = 2]
"""


def test_an_error_of_python_is_what_its_traceback_ends_with():
    found = explained(StreamingQueryException(OURSELVES))
    assert str(found) == "Spark says: OSError: [Errno 28] No space left on device"


PARSING = """[STREAM_FAILED] Query [id = 1] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error
occurred. Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/opt/captured.py", line 262, in deco
    raise converted from None
pyspark.errors.exceptions.captured.ParseException: \n[PARSE_SYNTAX_ERROR] Syntax error at or near '('. (line 1, pos 21)

== SQL ==
not coalesce(nonsense(, false)

=== Streaming Query ===
Identifier: [id = 1, runId = 2]
"""


def test_an_error_of_spark_in_a_batch_is_what_it_says_on_the_next_line():
    found = explained(StreamingQueryException(PARSING))
    assert str(found) == "Spark says: [PARSE_SYNTAX_ERROR] Syntax error at or near '('. (line 1, pos 21)"


@pytest.mark.parametrize("error", [UnknownTopic("no topic"), ValueError("penstock.x.Y: z"), KeyboardInterrupt()])
def test_what_is_not_of_spark_stays_as_it_is(error):
    assert explained(error) is error
