"""02: your own model, data, loss, metric and learning-rate schedule.

Forty clients each know the same curve y = sin(3x) + 0.5x, but each only a piece of it, and together
they learn it whole.

python examples/02_your_own_model_and_data.py
"""

import torch
from torch import nn

import pisces


def curve(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(3 * x) + 0.5 * x


def client_data(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A client's own piece of the curve, a little noisy; later clients have more samples."""
    torch.manual_seed(number)
    left = -2 + 2 * (number % 8) / 7
    x = left + 2 * torch.rand(20 + 2 * number, 1)
    return x, curve(x) + 0.05 * torch.randn_like(x)


def squared_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """One loss per sample: Pisces uses them to see whose data is worth most."""
    return (outputs - targets).square().mean(dim=1)


def r_squared(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    return float(1 - (outputs - targets).square().mean() / targets.var())


def plan(version: int) -> pisces.Plan:
    """A learning rate that shrinks as versions go by."""
    return pisces.Plan(epochs=5, batch_size=16, learning_rate=0.1 * 0.998**version)


if __name__ == "__main__":
    torch.manual_seed(0)
    x = torch.linspace(-2, 2, 200).unsqueeze(1)
    result = pisces.simulate(
        "pisces",
        model=nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1)),
        clients=[client_data(number) for number in range(40)],
        test=(x, curve(x)),
        concurrency=8,
        loss=squared_error,
        metrics={"r_squared": r_squared},
        plan=plan,
        recipe=pisces.Recipe(momentum=0.5, clip_norm=5.0),
        evaluate=pisces.Schedule(every_s=60),
        stop=pisces.Stop(time_s=3000, target=0.9, metric="r_squared"),
    )
    for at, value in result.curve("r_squared")[::5]:
        print(f"t = {at:5.0f} s   R^2 = {value:.3f}")
    summary = result.summary
    print(f"{summary['reason']} after {summary['at']:.0f} s and {summary['versions']} versions")
    point = torch.ones(1, 1)
    guess = result.model(point).item()
    print(f"y(1) = {guess:.2f}, in truth {curve(point).item():.2f}")
