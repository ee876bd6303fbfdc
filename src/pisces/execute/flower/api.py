"""All that is used of Flower, which is public there: only `pisces.flower` needs that package."""

from pisces.extras import installed

with installed("pisces.flower", "flower"):
    from flwr.app import (
        Array,
        ArrayRecord,
        ConfigRecord,
        Error,
        Message,
        MessageType,
        MetricRecord,
        RecordDict,
    )
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Result

__all__ = [
    "Array",
    "ArrayRecord",
    "ConfigRecord",
    "Error",
    "Grid",
    "Message",
    "MessageType",
    "MetricRecord",
    "RecordDict",
    "Result",
]
