"""Makes the descriptor of the network's messages from `wire.proto`: run it after a change there."""

from __future__ import annotations

import sys
from pathlib import Path

from grpc_tools import protoc

FOLDER = Path(__file__).parent.parent / "src/pisces/execute/network"


def make(target: Path) -> int:
    """Write the descriptor to a file; 0 if it could be made."""
    arguments = ["protoc", f"--proto_path={FOLDER}", f"--descriptor_set_out={target}", "wire.proto"]
    return int(protoc.main(arguments))


if __name__ == "__main__":
    sys.exit(make(FOLDER / "wire.binpb"))
