"""One seed, many independent random streams, each a pure function of its name and counters.

Nothing here has state that lives across episodes or updates: the stream of update 731 is the
same whether the process has run since update 0 or was restarted at update 731. That is what
makes a resumed run bit-identical to one that was never stopped; there is no generator state
to lose.
"""

import zlib

import numpy as np
import torch


def _sequence(seed: int, name: str, counters: tuple[int, ...]) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(zlib.crc32(name.encode()), *counters))


def numpy_stream(seed: int, name: str, *counters: int) -> np.random.Generator:
    """Return NumPy's generator for the stream ``name`` at ``counters``."""
    return np.random.default_rng(_sequence(seed, name, counters))


def torch_stream(
    seed: int, name: str, *counters: int, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Return PyTorch's generator for the stream ``name`` at ``counters``, on ``device``."""
    generator = torch.Generator(device=device)
    generator.manual_seed(integer_seed(seed, name, *counters))
    return generator


def integer_seed(seed: int, name: str, *counters: int) -> int:
    """Return a 31-bit seed, for libraries that take only an integer (environments do)."""
    return int(_sequence(seed, name, counters).generate_state(1)[0] >> 1)
