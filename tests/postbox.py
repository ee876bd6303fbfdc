"""A grid of Flower's that does what a test says, and nothing by itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid


class Postbox(Grid):
    """Keeps what is sent; hands out, once, what was put there to be pulled."""

    def __init__(self, *nodes: int) -> None:
        self.nodes = list(nodes)
        self.sent: list[Message] = []
        self.replies: dict[str, list[Message | BaseException]] = {}
        self.answers_push_with: Any = ...  # what a refused push is answered with
        self.num_pulls = self.num_looks = 0

    def get_node_ids(self) -> Iterable[int]:
        self.num_looks += 1
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        [message] = messages
        if self.answers_push_with is not ...:
            return self.answers_push_with
        message.metadata.__dict__["_message_id"] = f"m{len(self.sent)}"
        self.sent.append(message)
        return [message.metadata.message_id]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        self.num_pulls += 1
        found = [r for m in message_ids for r in self.replies.pop(m, [])]
        for reply in found:
            if isinstance(reply, BaseException):
                raise reply
        return found

    # --- what a node does -------------------------------------------------------------------------

    def answer(self, number: int = -1, **told: Any) -> Message:
        """The message of that number is done: one more than it was sent, unless told otherwise."""
        letter = self.sent[number]
        return self.put(letter, Message(reply(letter, **told), reply_to=letter))

    def fail(self, code: int, reason: str = "so it is", number: int = -1) -> Message:
        letter = self.sent[number]
        return self.put(letter, Message(Error(code, reason), reply_to=letter))

    def put(self, letter: Message, reply: Message | BaseException) -> Any:
        self.replies.setdefault(letter.metadata.message_id, []).append(reply)
        return reply

    # --- of which nothing is used -----------------------------------------------------------------

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], **kwargs: Any) -> Iterable[Message]:
        raise NotImplementedError


def reply(
    letter: Message,
    *,
    by: float = 1.0,
    arrays: ArrayRecord | None = None,
    metrics: dict[str, Any] | None = None,
) -> RecordDict:
    """What a plain ClientApp makes of a message."""
    if arrays is None:
        sent = letter.content.array_records["arrays"]
        arrays = ArrayRecord({name: moved(array, by) for name, array in sent.items()})
    told = metrics or {"num-examples": 10, "train_loss": 1.5, "loss-rms": 1.75}
    return RecordDict({"arrays": arrays, "metrics": MetricRecord(told)})


def moved(array: Array, by: float) -> Array:
    """Numbers that are averaged, further on."""
    values = array.numpy()
    return Array(values + values.dtype.type(by)) if values.dtype.kind == "f" else array


def record(**arrays: Any) -> ArrayRecord:
    """Arrays by name, of float32 unless they are numpy's own."""
    return ArrayRecord(
        {
            name: Array(value if isinstance(value, np.ndarray) else np.array(value, np.float32))
            for name, value in arrays.items()
        }
    )
