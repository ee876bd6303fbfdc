"""Text: documents cut into windows, words numbered, and every format it comes in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import datafiles
import numpy as np
import pytest
import torch

from pisces.data.catalogue import CATALOGUE
from pisces.data.datasets import Dataset
from pisces.data.finding import search
from pisces.data.raw import EOS, UNK, Documents
from pisces.data.text import Cut, Text
from pisces.data.words import Corpus, joined, split
from pisces.errors import ConfigError, DataError

NOWHERE = Path("tokens.npz")
dataset = Text().dataset


def documents(**changes: Any) -> Documents:
    """Three documents of author 4, one of author 7, one of author 9; 12 words known."""
    arrays: dict[str, Any] = {
        "words": np.array([3, 4, 2, 5, 2, 6, 7, 8, 2, 9, 10, 2, 11, 3, 3, 2], np.uint16),
        "offsets": np.array([0, 3, 5, 9, 12, 16]),
        "authors": np.array([4, 4, 4, 7, 9]),
        "vocabulary": np.array([f"w{number}" for number in range(12)]),
    }
    return Documents(**(arrays | changes))


def raw(name: str, folder: Path) -> Documents:
    place = search(CATALOGUE[name], folder)
    assert place is not None
    found = place.read()
    assert isinstance(found, Documents)
    return found


def texts(found: Documents) -> list[tuple[int, str]]:
    """Each document's author and its words."""
    spans = zip(found.authors, found.offsets, found.offsets[1:], strict=False)
    return [(int(a), " ".join(found.vocabulary[found.words[start:end]])) for a, start, end in spans]


# --- windows --------------------------------------------------------------------------------------


def test_an_authors_documents_are_cut_end_to_end() -> None:
    # Author 4 has 3 4 2 5 2 6 7 8 2: two windows of four words, one word is left over. Author 7 has
    # 9 10 2: none. Author 9, the last of fewer than ten, is held out: 11 3 3 2.
    data = dataset(documents(), NOWHERE, Cut(sequence_length=3))
    assert data.inputs.tolist() == [[3, 4, 2], [2, 6, 7]]
    assert data.targets.tolist() == [[4, 2, 5], [6, 7, 8]]
    assert data.test_inputs.tolist() == [[11, 3, 3]]
    assert data.test_targets.tolist() == [[3, 3, 2]]
    assert data.natural is not None
    assert data.natural.tolist() == [4, 4]
    assert (data.num_classes, data.objective) == (12, "next_word")
    assert (data.inputs.dtype, data.targets.dtype) == (torch.int64, torch.int64)
    assert data.inputs.is_contiguous()
    assert data.targets.is_contiguous()


def test_rare_words_are_unknown() -> None:
    data = dataset(documents(), NOWHERE, Cut(sequence_length=3, vocabulary=6))
    assert data.num_classes == 6
    assert data.targets.tolist() == [[4, 2, 5], [UNK, UNK, UNK]]
    assert data.test_inputs.tolist() == [[UNK, 3, 3]]


def test_every_tenth_author_is_held_out_however_text_is_cut() -> None:
    for length in (1, 3):
        found = documents(
            words=np.tile([3, 4, 5, EOS], 25),
            offsets=4 * np.arange(26),
            authors=100 + np.arange(25),
        )
        data = dataset(found, NOWHERE, Cut(sequence_length=length))
        assert data.natural is not None
        held_out = set(range(100, 125)) - set(data.natural.tolist())
        assert held_out == {109, 119}
        assert len(data.test_inputs) == 2 * 4 // (length + 1)


def test_files_may_say_themselves_what_to_test_on() -> None:
    in_test = np.array([False, True, True, False, False])
    data = dataset(documents(in_test=in_test), NOWHERE, Cut(sequence_length=2))
    # author 4 keeps 3 4 2, 7 has 9 10 2, 9 has 11 3 3 (2 is left); to test on: 5 2 6, 7 8 2
    assert data.inputs.tolist() == [[3, 4], [9, 10], [11, 3]]
    assert data.test_inputs.tolist() == [[5, 2], [7, 8]]


def test_text_too_short_for_a_sample() -> None:
    with pytest.raises(DataError, match=r"sequence_length = 9 words leave 0 to train on and 0"):
        dataset(documents(), NOWHERE, Cut(sequence_length=9))


def test_a_vocabulary_without_words_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data.vocabulary must be above 3.*not 3"):
        dataset(documents(), NOWHERE, Cut(vocabulary=3))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"offsets": np.array([0, 3, 5, 9, 12, 15])}, "do not make up its words"),
        ({"offsets": np.array([0, 5, 3, 9, 12, 16])}, "do not make up its words"),
        ({"offsets": np.array([0])}, "do not make up its words"),
        ({"authors": np.array([4, 4, 9, 7, 9])}, "not one after another by author"),
        ({"authors": np.array([4, 4, 4, 7])}, "not one after another by author"),
        ({"in_test": np.array([True])}, "whether it is for testing"),
        ({"vocabulary": np.array(["a", "b", "c"])}, "not in its vocabulary"),
        ({"words": np.arange(16) - 1}, "not in its vocabulary"),
    ],
)
def test_documents_that_cannot_be(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        dataset(documents(**changes), NOWHERE, Cut(sequence_length=3))


# --- words ----------------------------------------------------------------------------------------


def test_words_and_marks() -> None:
    assert split("Don't stop, Zoë!") == ["don", "'", "t", "stop", ",", "zoë", "!"]


def test_words_are_numbered_by_frequency_and_documents_sorted_by_author() -> None:
    corpus = Corpus()
    corpus.add("zoë", ["b", "c", "b"])
    corpus.add("ann", ["a", "b"])
    corpus.add("zoë", ["c"])
    found = corpus.documents()
    assert found.vocabulary.tolist() == ["<pad>", "<unk>", "<eos>", "b", "c", "a"]
    assert texts(found) == [(0, "a b <eos>"), (1, "b c b <eos>"), (1, "c <eos>")]
    assert found.in_test is None


def test_a_copy_of_text_has_a_digest_of_all_that_is_learned_from() -> None:
    corpus = Corpus()
    corpus.add("ann", ["a", "b"])
    corpus.add("zoë", ["b", "b"])
    found = corpus.documents()
    as_read = replace(found, words=found.words.astype(np.int64))  # as ready files are
    assert as_read.digest() == found.digest()
    others = (
        replace(found, words=found.words[::-1]),
        replace(found, offsets=np.array([0, 2, 6])),
        replace(found, authors=np.array([0, 0])),
        replace(found, vocabulary=np.array(["<pad>", "<unk>", "<eos>", "b", "c"])),
        replace(found, in_test=np.array([False, True])),
    )
    assert len({found.digest(), *(other.digest() for other in others)}) == 1 + len(others)


def test_only_so_many_words_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pisces.data.words.KEPT", 5)
    corpus = Corpus()
    corpus.add("ann", "cbabcbd")
    assert corpus.documents().vocabulary.tolist() == ["<pad>", "<unk>", "<eos>", "b", "c"]
    assert corpus.documents().words.tolist() == [4, 3, UNK, 3, 4, 3, UNK, EOS]


def test_long_words_are_cut_into_several_whether_text_or_a_list_of_words() -> None:
    corpus = Corpus()
    corpus.add("ann", split("a" * 90))
    corpus.add("bob", ["b" * 90, "a" * 40])
    a, b = "a" * 40, "b" * 40  # 90 characters: 40, 40 and 10
    documents = [(0, f"{a} {a} {a[:10]} <eos>"), (1, f"{b} {b} {b[:10]} {a} <eos>")]
    assert texts(corpus.documents()) == documents
    assert corpus.documents().vocabulary.itemsize == 40 * 4  # bytes of a character


def test_samples_of_leaf_are_joined_to_the_texts_they_are_of() -> None:
    first, second = "to be or not to be", "that is the question"
    (x1, y1), (x2, y2) = datafiles.sliding(first, 5), datafiles.sliding(second, 5)
    assert list(joined(zip(x1 + x2, y1 + y2, strict=True))) == [first, second]
    assert list(joined([])) == []


# --- formats --------------------------------------------------------------------------------------


def test_leaf(tmp_path: Path) -> None:
    train = {"HAMLET": datafiles.sliding("a" * 79 + "bcd"), "BOY": datafiles.sliding("e" * 81)}
    datafiles.leaf(tmp_path / "train" / "all_data_train_9.json", train)
    datafiles.leaf(tmp_path / "test" / "all_data_test_9.json", {"BOY": datafiles.sliding("f" * 82)})
    found = raw("shakespeare", tmp_path)
    assert found.in_test is not None
    assert found.in_test.tolist() == [False, True, False]
    assert texts(found) == [
        (0, " ".join("e" * 81) + " <eos>"),
        (0, " ".join("f" * 82) + " <eos>"),
        (1, " ".join("a" * 79 + "bcd") + " <eos>"),
    ]


def test_leaf_in_parquet(tmp_path: Path) -> None:
    x, y = datafiles.sliding("to be or not to be" * 9)
    columns = {"character_id": ["HAMLET"] * len(x) + ["BOY"], "x": [*x, "k" * 80], "y": [*y, "l"]}
    datafiles.parquet(tmp_path / "data.parquet", columns)
    found = raw("shakespeare", tmp_path)
    assert texts(found) == [
        (0, " ".join("k" * 80 + "l") + " <eos>"),
        (1, " ".join("to be or not to be" * 9) + " <eos>"),
    ]


@pytest.mark.parametrize("name", ["stackoverflow", "stackexchange"])
def test_posts_in_parquet(tmp_path: Path, name: str) -> None:
    datafiles.parquet(tmp_path / "a.parquet", {"author": [7, 3], "text": ["How, now?", "So."]})
    datafiles.parquet(tmp_path / "b.parquet", {"author": [3, 7], "text": ["so so", "now"]})
    found = raw(name, tmp_path)
    assert texts(found) == [
        (0, "so . <eos>"),
        (0, "so so <eos>"),
        (1, "how , now ? <eos>"),
        (1, "now <eos>"),
    ]
    datafiles.parquet(tmp_path / "a.parquet", {"author": [1], "text": [["Any", "words"]]})
    assert (0, "Any words <eos>") in texts(raw(name, tmp_path))


POSTS = """<?xml version="1.0" encoding="utf-8"?>
<posts>
  <row Id="1" PostTypeId="1" OwnerUserId="8" Body="&lt;p&gt;Which &lt;b&gt;malt&lt;/b&gt;?&lt;/p&gt;
    &lt;pre&gt;&lt;code&gt;x = 1&lt;/code&gt;&lt;/pre&gt;" />
  <row Id="2" PostTypeId="2" OwnerUserId="3" Body="&lt;blockquote&gt;Which?&lt;/blockquote&gt;
    Zo&#235; &amp;amp; me: https://a.b/c?d" />
  <row Id="3" PostTypeId="2" Body="Whose?" />
  <row Id="4" PostTypeId="5" OwnerUserId="3" Body="Of a tag." />
</posts>
"""
COMMENTS = '<comments><row Id="9" PostId="1" Text="Malt!" UserId="8" /></comments>'


def site(folder: Path, posts: str = POSTS, comments: str | None = COMMENTS) -> Path:
    folder.mkdir()
    (folder / "Posts.xml").write_text(posts)
    if comments is not None:
        (folder / "Comments.xml").write_text(comments)
    return folder


def test_a_dump(tmp_path: Path) -> None:
    assert texts(raw("stackexchange", site(tmp_path / "beer"))) == [
        (0, "zoë & me : url <eos>"),
        (1, "which malt ? <eos>"),
        (1, "malt ! <eos>"),
    ]


def test_dumps_of_many_sites(tmp_path: Path) -> None:
    site(tmp_path / "beer")
    site(tmp_path / "coffee", comments=None)
    found = raw("stackexchange", tmp_path)
    assert np.bincount(found.authors).tolist() == [1, 2, 1, 1]  # beer/3, beer/8, coffee/3, coffee/8
    assert len(texts(raw("stackoverflow", tmp_path / "coffee"))) == 2
    (tmp_path / "beer" / "Comments.xml").unlink()
    assert np.bincount(raw("stackexchange", tmp_path).authors).tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("posts", "words"),
    [
        ("", "no element found"),
        (POSTS[:200], "damaged"),
        ("text", "syntax error"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><posts/>', "declares a document type"),
    ],
)
def test_wrong_dumps(tmp_path: Path, posts: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        raw("stackexchange", site(tmp_path / "beer", posts))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"author": ["a"], "body": ["b"]}, "no column text, only author, body"),
        ({"author": ["a"], "text": [None]}, "text is not text everywhere"),
        ({"author": ["a"], "text": [1.5]}, "text is not text everywhere"),
    ],
)
def test_wrong_posts(tmp_path: Path, columns: dict[str, Any], words: str) -> None:
    datafiles.parquet(tmp_path / "posts.parquet", columns)
    with pytest.raises(DataError, match=words):
        raw("stackoverflow", tmp_path)


def test_samples_in_parquet_that_are_not_text(tmp_path: Path) -> None:
    columns = {"character_id": ["BOY"], "x": ["to be"], "y": [None]}
    datafiles.parquet(tmp_path / "data.parquet", columns)
    with pytest.raises(DataError, match="its samples are not text everywhere"):
        raw("shakespeare", tmp_path)


def test_samples_of_leaf_that_are_not_text(tmp_path: Path) -> None:
    datafiles.leaf(tmp_path / "all_data.json", {"BOY": ([1], ["b"])})
    with pytest.raises(DataError, match="the samples of 'BOY' are not text"):
        raw("shakespeare", tmp_path)


def tokens(folder: Path, **changes: Any) -> Path:
    found = documents()
    arrays = {
        "tokens": found.words,
        "doc_offset": found.offsets.astype(np.int32),
        "doc_client": found.authors.astype(np.int32),
        "vocab": found.vocabulary,
        "doc_time": np.arange(5),  # more than we need
    } | changes
    np.savez(folder / "stackexchange_tokens.npz", **arrays)
    return folder


def test_a_ready_file(tmp_path: Path) -> None:
    place = search(CATALOGUE["stackexchange"], tokens(tmp_path))
    assert place is not None
    data: Dataset = place.dataset(place.read(), Cut(sequence_length=3))
    assert torch.equal(data.inputs, dataset(documents(), NOWHERE, Cut(sequence_length=3)).inputs)


def test_a_ready_file_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"tokens is float64\(3,\), not a row of whole numbers"):
        raw("stackexchange", tokens(tmp_path, tokens=np.zeros(3)))
