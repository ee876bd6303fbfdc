"""The messages of `wire.proto` as classes.

They are made from its descriptor, not generated: generated code works with few versions of
protobuf, and others (Flower) pin other ones. `scripts/wire.py` makes the descriptor.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from pisces.execute.network.extra import needed

with needed():
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError

__all__ = ["TALK", "DecodeError", "ToClient", "ToServer"]

DESCRIPTOR = "wire.binpb"
TALK = "/pisces.Federation/Talk"


def _classes() -> dict[str, Any]:
    """The class of each message; in a pool of its own, away from everybody else's."""
    text = files("pisces.execute.network").joinpath(DESCRIPTOR).read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(text).file:
        pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"pisces.{name}"))
        for name in ("ToServer", "ToClient")
    }


_CLASSES = _classes()
ToServer, ToClient = _CLASSES["ToServer"], _CLASSES["ToClient"]
