"""A pool of samples and each client's rows in it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from pisces.data.federated import FederatedData, Pair
from pisces.errors import DataError

TEST: Pair = (torch.tensor([[9.0]]), torch.tensor([1]))


def pair(*values: float) -> Pair:
    return torch.tensor(values)[:, None], torch.arange(len(values))


def test_clients_see_their_own_rows() -> None:
    data = FederatedData(
        inputs=torch.tensor([[0.0], [1.0], [2.0], [3.0]]),
        targets=torch.tensor([0, 10, 20, 30]),
        rows=(np.array([3, 0]), np.array([1])),
        test_inputs=TEST[0],
        test_targets=TEST[1],
    )
    inputs, targets = data.client(0)
    assert inputs.tolist() == [[3.0], [0.0]]
    assert targets.tolist() == [30, 0]
    assert data.num_clients == 2
    assert data.num_examples.tolist() == [2, 1]  # row 2 has no owner
    assert data.num_examples.dtype == np.int64


def test_clients_are_pooled_in_order() -> None:
    clients = [pair(1.0, 2.0), pair(3.0), pair(4.0, 5.0, 6.0)]
    data = FederatedData.from_clients(clients, TEST)
    assert data.inputs.flatten().tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert [rows.tolist() for rows in data.rows] == [[0, 1], [2], [3, 4, 5]]
    assert all(rows.dtype == np.int64 for rows in data.rows)
    for client, (inputs, targets) in enumerate(clients):
        assert torch.equal(data.client(client)[0], inputs)
        assert torch.equal(data.client(client)[1], targets)
    assert data.test_inputs is TEST[0]
    assert data.test_targets is TEST[1]


def test_a_client_s_samples_are_a_copy() -> None:
    data = FederatedData.from_clients([pair(1.0, 2.0)], TEST)
    data.client(0)[0].zero_()
    assert data.inputs.flatten().tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("clients", "words"),
    [
        ([], "no clients"),
        ([pair(1.0), (torch.zeros(2, 1), torch.zeros(3))], "client 1 has 2 inputs and 3 targets"),
        ([pair(1.0), (torch.zeros(0, 1), torch.zeros(0))], "client 1 has 0 inputs and 0 targets"),
    ],
)
def test_impossible_clients_are_refused(clients: list[Pair], words: str) -> None:
    with pytest.raises(DataError, match=words):
        FederatedData.from_clients(clients, TEST)


def test_a_client_may_be_a_torch_dataset() -> None:
    class Squares(Dataset[tuple[torch.Tensor, int]]):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
            return torch.tensor([float(i)]), i * i

    pair = (torch.ones(2, 1), torch.tensor([7, 8]))
    data = FederatedData.from_clients([Squares(), pair], test=pair)
    assert data.inputs.flatten().tolist() == [0.0, 1.0, 2.0, 1.0, 1.0]
    assert data.targets.tolist() == [0, 1, 4, 7, 8]
    assert data.num_examples.tolist() == [3, 2]


def test_an_empty_dataset_is_refused() -> None:
    class Nothing(Dataset[tuple[torch.Tensor, int]]):
        def __len__(self) -> int:
            return 0

    with pytest.raises(DataError, match="client 0 has 0 inputs"):
        FederatedData.from_clients([Nothing()], test=(torch.ones(1, 1), torch.ones(1)))


def pooled(epoch_sizes: list[int]) -> FederatedData:
    """Two clients that own three rows and one."""
    rows = (np.array([3, 0, 3]), np.array([1]))
    samples = (torch.arange(4.0)[:, None], torch.arange(4))
    return FederatedData(*samples, rows, *TEST, epoch_sizes=np.array(epoch_sizes))


def test_an_epoch_may_take_some_of_a_client_s_rows() -> None:
    data = pooled([2, 1])
    assert data.num_examples.tolist() == [2, 1]
    assert data.client(0)[1].tolist() == [3, 0]


@pytest.mark.parametrize("sizes", [[2], [2, 2], [0, 1], [4, 1]])
def test_epochs_of_impossible_size_are_refused(sizes: list[int]) -> None:
    with pytest.raises(DataError, match="epoch_sizes: give each client one number, from 1"):
        pooled(sizes)


def test_clients_may_learn_the_next_word() -> None:
    text = (torch.tensor([[1, 2]]), torch.tensor([[2, 3]]))
    assert FederatedData.from_clients([text], text, "next_word").objective == "next_word"
    assert FederatedData.from_clients([text], text).objective == "labels"
