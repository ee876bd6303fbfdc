"""Images of bytes made into a dataset: checked, then normalised."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from pisces.data.datasets import Dataset
from pisces.data.raw import Bytes, Documents, Images, Raw, damaged


@dataclass(frozen=True, slots=True)
class Look:
    """What images must be like; without `mean` and `sd` (per channel) the training images' own."""

    shape: tuple[int, int, int]
    num_classes: int
    mean: tuple[float, ...] | None = None
    sd: tuple[float, ...] | None = None

    def check(self, raw: Raw, path: Path) -> Images:
        """The images, if they are what they should be; an error names `path`."""
        if isinstance(raw, Documents):
            raise damaged(path, "it holds text, not images")
        self._check(path, "train", raw.train, raw.labels)
        self._check(path, "test", raw.test, raw.test_labels)
        if raw.writers is not None and raw.writers.shape != raw.labels.shape:
            raise damaged(path, f"it names {len(raw.writers)} writers of {len(raw.labels)} images")
        return raw

    def dataset(self, found: Raw, path: Path, _: object) -> Dataset:
        """The dataset these images make, however text is cut."""
        raw = self.check(found, path)
        mean, sd = self._scale(raw.train)
        return Dataset(
            inputs=_normalised(raw.train, mean, sd),
            targets=torch.from_numpy(raw.labels.astype(np.int64)),
            test_inputs=_normalised(raw.test, mean, sd),
            test_targets=torch.from_numpy(raw.test_labels.astype(np.int64)),
            num_classes=self.num_classes,
            natural=None if raw.writers is None else raw.writers.astype(np.int64),
        )

    def _check(self, path: Path, part: str, images: Bytes, labels: NDArray[np.generic]) -> None:
        if images.dtype != np.uint8 or images.shape[1:] != self.shape or len(images) == 0:
            wanted = ", ".join(map(str, self.shape))
            found = f"{images.dtype}{images.shape}"
            raise damaged(path, f"{part} images are {found}, not uint8(n, {wanted})")
        known = labels.shape == (len(images),) and np.isin(labels, range(self.num_classes)).all()
        if not known:
            raise damaged(
                path, f"{part} labels are not one from 0 to {self.num_classes - 1} per image"
            )

    def _scale(self, images: Bytes) -> tuple[tuple[float, ...], tuple[float, ...]]:
        if self.mean is not None and self.sd is not None:
            return self.mean, self.sd
        values = np.arange(256) / 255  # counted, not converted: a tenth of the memory
        counts = [np.bincount(c.ravel(), minlength=256) for c in images.swapaxes(0, 1)]
        means = tuple(float(n @ values / n.sum()) for n in counts)
        squares = tuple(float(n @ values**2 / n.sum()) for n in counts)
        sds = tuple(max(s - m * m, 1e-12) ** 0.5 for s, m in zip(squares, means, strict=True))
        return means, sds


def _normalised(images: Bytes, mean: tuple[float, ...], sd: tuple[float, ...]) -> torch.Tensor:
    # in place: the whole of MNIST is 190 MB as floats
    floats = torch.from_numpy(np.require(images, requirements=["C", "W"])).float().div_(255)
    for channel, (m, s) in enumerate(zip(mean, sd, strict=True)):
        floats[:, channel].sub_(m).div_(s)
    return floats
