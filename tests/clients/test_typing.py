"""What a type checker makes of producers and consumers: values have the types of their serializers.

Pyright reads `SAMPLE` beside the tree as the wheel lays it out (support/typed.py).
"""

from __future__ import annotations

from support.typed import check_sample

SAMPLE = """
import penstock
from penstock import aio

def dumps(number: int) -> bytes: ...
def loads(data: bytes) -> int: ...

def threads(client: penstock.Client) -> None:
    plain = client.producer("t")
    reveal_type(plain)  # is Producer[bytes]
    plain.send(b"v")
    plain.send(None)
    plain.send("text")  # wrong
    plain.send_many(["text"])  # wrong
    numbers = client.producer("t", value=(dumps, loads))
    reveal_type(numbers)  # is Producer[int]
    numbers.send(7)
    numbers.send_many([7, 8])
    numbers.send(b"v")  # wrong
    numbers.send_nowait("text")  # wrong
    client.producer("t", value="json", codec="zstd").send({"a": [1]})
    client.producer("t", value="yaml")  # wrong
    client.producer("t", value=(loads, loads))  # wrong

    reveal_type(client.consumer("t"))  # is Consumer[bytes | Any]
    reveal_type(client.consumer("t", value=(dumps, loads), group="g").fetch()[0].value)  # is int
    reveal_type(client.consumer("t", value="json").fetch()[0].value)  # is Any
    reveal_type(client.consumer(["t", "u-*"], value=(dumps, loads)))  # is TopicsConsumer[int]
    reveal_type(client.consumer(("t", "u")).position)  # is dict[str, dict[int, int]]
    for record in client.consumer("t", value=(dumps, loads)):
        reveal_type(record.value)  # is int
    client.consumer("t", value=dumps)  # wrong
    client.consumer("t", groop="g")  # wrong
    reveal_type(client.worker("t", group="g"))  # is Worker[bytes | Any]
    reveal_type(client.worker("t", group="g", value="json").fetch()[0].value)  # is Any
    for task in client.worker("t", group="g", value=(dumps, loads), lease="5m"):
        reveal_type(task.value)  # is int
        task.ack()
    client.worker("t", group="g", value="yaml")  # wrong
    with client.transaction() as transaction:
        reveal_type(transaction.producer("t", value=(dumps, loads)))  # is Producer[int]

async def loop(client: aio.AsyncClient) -> None:
    reveal_type(await client.consumer("t"))  # is AsyncConsumer[bytes | Any]
    async with client.consumer("t", value=(dumps, loads)) as consumer:
        reveal_type((await consumer.fetch())[0].value)  # is int
    async with client.worker("t", group="g", value=(dumps, loads)) as worker:
        reveal_type((await worker.fetch())[0].value)  # is int
    async with client.consumer(["t"]) as several:
        reveal_type(several)  # is AsyncTopicsConsumer[bytes | Any]
    async with client.producer("t", value=(dumps, loads)) as producer:
        await producer.send(7)
        await producer.send(b"v")  # wrong

def given(one: penstock.Record, consumer: penstock.Consumer, producer: penstock.Producer) -> bytes:
    producer.send(one.value)
    return one.value
"""


def test_values_have_the_types_of_their_serializers(tmp_path):
    check_sample(tmp_path, SAMPLE)
