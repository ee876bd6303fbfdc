"""Pictures (PNG, WebP): single ones, and CIFAR-10 as mosaics. Needs Pillow."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pisces.data.formats import npz
from pisces.data.raw import Bytes, Found, Images, Tell, reading
from pisces.errors import MissingPackageError

if TYPE_CHECKING:
    from PIL import Image

SIDE = 32  # pixels of an image in a mosaic
_MOST_PIXELS = 1 << 25  # of a mosaic, which has 10 million


def require() -> None:
    """An error now where Pillow is not installed: later it would be taken for a bad picture."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise MissingPackageError(
            "pictures need Pillow, which is not installed: pip install 'pisces-fl[data]'"
        ) from error


def decode(content: bytes, shape: tuple[int, int, int]) -> Bytes:
    """One picture as bytes (channels, height, width); a ValueError where its shape is another."""
    channels, height, width = shape
    with _opened(io.BytesIO(content)) as picture:
        if picture.size != (width, height):
            raise ValueError(f"a picture of {picture.size} pixels instead of {(width, height)}")
        pixels = np.asarray(picture.convert("L" if channels == 1 else "RGB"))
    return pixels.reshape(height, width, channels).transpose(2, 0, 1)


def mosaics(found: Found, tell: Tell) -> Images:
    """`train_0.webp` ... , `test.webp`: images side by side, row by row; labels in `labels.npz`."""
    require()
    arrays = npz.read(found[2][0], ("y_train", "y_test"))
    labels = {name: npz.whole(found[2][0], name, array) for name, array in arrays.items()}
    paths = [*found[0], found[1][0]]
    parts = []
    for number, path in enumerate(paths):
        tell(number, len(paths))
        parts.append(_mosaic(path))
    return Images(
        train=np.concatenate(parts[:-1]),
        labels=labels["y_train"],
        test=parts[-1],
        test_labels=labels["y_test"],
    )


def _mosaic(path: Path) -> Bytes:
    with reading(path), _opened(path) as picture:
        width, height = picture.size
        if width % SIDE or height % SIDE or width * height > _MOST_PIXELS:
            raise ValueError(f"{width} x {height} pixels are no mosaic of images of {SIDE}")
        pixels = np.asarray(picture.convert("RGB"))
    tiles = pixels.reshape(height // SIDE, SIDE, width // SIDE, SIDE, 3)
    return tiles.transpose(0, 2, 4, 1, 3).reshape(-1, 3, SIDE, SIDE)


def _opened(file: Path | io.BytesIO) -> Image.Image:
    from PIL import Image

    return Image.open(file, formats=["PNG", "WEBP"])
