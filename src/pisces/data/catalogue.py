"""The datasets there are: a row each. A new one is one more row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pisces.data.formats import cifar, dump, idx, leaf, npz, pictures
from pisces.data.formats.columns import CharacterTable, Columns, ImageTable, TextTable
from pisces.data.formats.parquet import Parquet
from pisces.data.hub import Hub
from pisces.data.images import Look
from pisces.data.raw import Found, Raw, Tell
from pisces.data.text import Text


@dataclass(frozen=True, slots=True)
class Source:
    """One form a dataset comes in: patterns of file names, all in one folder, and their reader."""

    files: tuple[str, ...]
    read: Callable[[Found, Tell], Raw]


@dataclass(frozen=True, slots=True)
class Entry:
    """A dataset: what it is, in which files it may come, and what must be in them (`kind`).

    `ready` is the file that `pisces data get` writes. `clients` says what the natural clients are,
    `digest` is the published dataset's (`Images.digest`), `by_hand` says how to get its files
    without the hub.
    """

    about: str
    licence: str
    cite: str
    ready: Source
    sources: tuple[Source, ...]
    kind: Look | Text
    by_hand: str
    hub: Hub | None = None
    clients: str | None = None
    digest: str | None = None

    def published(self, digest: str) -> bool | None:
        """Whether that is the published images' and labels'; None where we do not know those."""
        return None if self.digest is None else digest == self.digest


# --- the parts rows are made of -------------------------------------------------------------------

GREY = (1, 28, 28)
_IDX = (
    "train-images*idx3-ubyte*",
    "train-labels*idx1-ubyte*",
    "t10k-images*idx3-ubyte*",
    "t10k-labels*idx1-ubyte*",
)
_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
_TWO_TABLES = ("*train*.parquet", "*test*.parquet")
_LEAF = (("train/*.json", "test/*.json"), ("all_data*.json",))
_LEAF_BY_HAND = "let LEAF's preprocess.sh write data/train and data/test, and name that folder"
_MNIST_TABLE = ImageTable(Columns("image", "label"), GREY)
_CIFAR_TABLE = ImageTable(Columns("img", "label"), cifar.SHAPE)
_FEMNIST_TABLE = ImageTable(Columns("image", "character", "writer_id"), GREY)
_SHAKESPEARE_TABLE = CharacterTable(Columns("x", "y", "character_id"))
_POSTS_TABLE = TextTable(Columns("text", client="author"))
_POSTS = (
    Source(("*/Posts.xml", "*/Comments.xml"), dump.posts),  # many sites
    Source(("*/Posts.xml",), dump.posts),
    Source(("Posts.xml", "Comments.xml"), dump.posts),
    Source(("Posts.xml",), dump.posts),
    Source(_TWO_TABLES, Parquet(_POSTS_TABLE)),
    Source(("*.parquet",), Parquet(_POSTS_TABLE)),
)
_POSTS_BY_HAND = (
    "unpack a site's data dump (Posts.xml, Comments.xml), or write Parquet files with a column "
    "author and a column text, one row per post; then name their folder"
)


def _images(name: str) -> Source:
    return Source((f"{name}.npz",), npz.images)


def _text(name: str) -> Source:
    return Source((f"{name}_tokens.npz",), npz.text)


# --- the rows -------------------------------------------------------------------------------------

CATALOGUE: Mapping[str, Entry] = {
    "mnist": Entry(
        about="handwritten digits, 28 x 28, 10 classes",
        licence="CC BY-SA 3.0",
        cite="LeCun et al., 1998; writers from QMNIST (Yadav and Bottou, 2019)",
        ready=_images("mnist"),
        sources=(
            Source((*_IDX, "qmnist-train-labels*idx2-int*"), idx.images),
            Source(_IDX, idx.images),
            Source(_TWO_TABLES, Parquet(_MNIST_TABLE)),
        ),
        kind=Look(GREY, 10, mean=(0.1307,), sd=(0.3081,)),
        by_hand="download its four IDX files, beside them QMNIST's training labels "
        "(qmnist-train-labels-idx2-int.gz), which name the writers, and name their folder",
        hub=Hub("ylecun/mnist", _MNIST_TABLE),
        clients="writers",
        digest="06b0d1f124c4e5fa796686ade41a9b778edacc8622f2195a352ef479ad44fc16",
    ),
    "fashion_mnist": Entry(
        about="pictures of clothes, 28 x 28, 10 classes",
        licence="MIT",
        cite="Xiao et al., 2017",
        ready=_images("fashion_mnist"),
        sources=(Source(_IDX, idx.images), Source(_TWO_TABLES, Parquet(_MNIST_TABLE))),
        kind=Look(GREY, 10, mean=(0.2860,), sd=(0.3530,)),
        by_hand="download its four IDX files and name their folder",
        hub=Hub("zalando-datasets/fashion_mnist", _MNIST_TABLE),
        digest="ca3ab2a37f845e1b8ae23cab1b51749a3011ba3bf1d9016176d75cbaabac376f",
    ),
    "cifar10": Entry(
        about="colour photographs, 32 x 32, 10 classes",
        licence="none stated",
        cite="Krizhevsky, 2009",
        ready=_images("cifar10"),
        sources=(
            Source(_BATCHES, cifar.python_batches),
            Source(tuple(f"{name}.bin" for name in _BATCHES), cifar.binary_batches),
            Source(("train_*.webp", "test.webp", "labels.npz"), pictures.mosaics),
            Source(_TWO_TABLES, Parquet(_CIFAR_TABLE)),
        ),
        kind=Look(cifar.SHAPE, 10, mean=(0.4914, 0.4822, 0.4465), sd=(0.2470, 0.2435, 0.2616)),
        by_hand="download its Python or binary version, unpack it and name that folder",
        hub=Hub("uoft-cs/cifar10", _CIFAR_TABLE),
        digest="32e5966899bde482c0ef7d076bf69809b4b1488c806f657a814cfca4646ec493",
    ),
    "femnist": Entry(
        about="digits and letters by writer, 28 x 28, 62 classes",
        licence="BSD 2-clause",
        cite="Caldas et al. (LEAF), 2018; Cohen et al., 2017",
        ready=_images("femnist"),
        sources=(
            *(Source(files, leaf.femnist) for files in _LEAF),
            Source(_TWO_TABLES, Parquet(_FEMNIST_TABLE)),
            Source(("*.parquet",), Parquet(_FEMNIST_TABLE)),
        ),
        kind=Look(GREY, 62),
        by_hand=_LEAF_BY_HAND,
        hub=Hub("flwrlabs/femnist", _FEMNIST_TABLE, splits=("train",)),
        clients="writers",
    ),
    "shakespeare": Entry(
        about="plays by role, next character",
        licence="BSD 2-clause",
        cite="Caldas et al. (LEAF), 2018; McMahan et al., 2017",
        ready=_text("shakespeare"),
        sources=(
            *(Source(files, leaf.shakespeare) for files in _LEAF),
            Source(("*.parquet",), Parquet(_SHAKESPEARE_TABLE)),
        ),
        kind=Text(),
        by_hand=_LEAF_BY_HAND,
        hub=Hub("flwrlabs/shakespeare", _SHAKESPEARE_TABLE, splits=("train",)),
        clients="roles",
    ),
    "stackoverflow": Entry(
        about="posts by author, next word",
        licence="CC BY-SA",
        cite="Stack Overflow, its users",
        ready=_text("stackoverflow"),
        sources=_POSTS,
        kind=Text(),
        by_hand=_POSTS_BY_HAND,
        clients="authors",
    ),
    "stackexchange": Entry(
        about="posts and comments by author, next word",
        licence="CC BY-SA",
        cite="Stack Exchange, its sites and users",
        ready=_text("stackexchange"),
        sources=_POSTS,
        kind=Text(),
        by_hand=_POSTS_BY_HAND,
        clients="authors",
    ),
}
