"""The latent dynamics against their equations."""

import numpy as np
import torch

import reference_model as ref
from model_building import (
    ACTIONS,
    EXACT,
    build,
    cells,
    golden,
    random_belief,
    seeded,
    to_numpy,
)
from planet_bayes.models import RSSM
from planet_bayes.models.rssm import MIN_STATE_STD


@golden
def test_one_step_is_the_equations(members: int, activation: str) -> None:
    model = build(members, activation=activation).double()
    num, embed_size = 4, model.config.dense_units
    generator = seeded(2)
    belief = random_belief(model, num, 3)
    action = torch.randn(members, num, ACTIONS, generator=generator).double()
    embed = torch.randn(members, num, embed_size, generator=generator).double()
    noise = torch.randn(members, num, model.config.stoch, generator=generator).double()
    rssm, weights = model.rssm, model.weights()
    part = rssm.embed_part(weights, embed)
    seen, posterior = rssm.observe_step(weights, belief, action, part, noise)
    ahead = rssm.imagine_step(weights, belief, action, noise)
    mean_ahead = rssm.imagine_step(weights, belief, action, None)
    prior = rssm.prior(weights, seen.deter)
    assert torch.equal(seen.deter, ahead.deter)
    for e, cell in enumerate(cells(model)):
        for n in range(num):
            h, s, a = (to_numpy(x[e, n]) for x in (belief.deter, belief.stoch, action))
            deter = ref.evolve(cell, h, s, a)
            before = ref.prior(cell, deter)
            after = ref.posterior(cell, deter, to_numpy(embed[e, n]))
            draw = to_numpy(noise[e, n])
            pairs = [
                (seen.deter, deter),
                (prior.mean, before.mean),
                (prior.std, before.std),
                (posterior.mean, after.mean),
                (posterior.std, after.std),
                (seen.stoch, after.mean + after.std * draw),
                (ahead.stoch, before.mean + before.std * draw),
                (mean_ahead.stoch, before.mean),
            ]
            for got, expected in pairs:
                np.testing.assert_allclose(to_numpy(got[e, n]), expected, **EXACT)


@golden
def test_filtering_is_the_equations(members: int, activation: str) -> None:
    model = build(members, activation=activation).double()
    batch, steps = 2, 5
    generator = seeded(2)
    embed = torch.randn(members, batch, steps, 7, generator=generator).double()
    action = torch.randn(members, batch, steps, ACTIONS, generator=generator).double()
    noise = torch.randn(steps, members, batch, 3, generator=generator).double()
    got = model.filter_sequences(embed, action, noise)
    expected = ref.filter_sequences(
        cells(model), to_numpy(embed), to_numpy(action), to_numpy(noise)
    )
    for left, right in [
        (got.deter, expected.deter),
        (got.stoch, expected.stoch),
        (got.prior.mean, expected.prior.mean),
        (got.prior.std, expected.prior.std),
        (got.posterior.mean, expected.posterior.mean),
        (got.posterior.std, expected.posterior.std),
    ]:
        np.testing.assert_allclose(to_numpy(left), right, **EXACT)
    assert torch.equal(got.features, torch.cat([got.deter, got.stoch], -1))


def test_filtering_in_float32_is_as_near_as_float32_gets() -> None:
    model = build(3)
    generator = seeded(2)
    embed = torch.randn(3, 2, 8, 7, generator=generator)
    action = torch.randn(3, 2, 8, ACTIONS, generator=generator)
    noise = torch.randn(8, 3, 2, 3, generator=generator)
    got = model.filter_sequences(embed, action, noise)
    expected = ref.filter_sequences(
        cells(model), to_numpy(embed), to_numpy(action), to_numpy(noise)
    )
    # Eight steps of a recurrence, each with a few roundings of 6e-8.
    np.testing.assert_allclose(to_numpy(got.deter), expected.deter, rtol=0, atol=3e-6)
    np.testing.assert_allclose(to_numpy(got.stoch), expected.stoch, rtol=0, atol=1e-5)


@golden
def test_rollout_is_the_equations(members: int, activation: str) -> None:
    model = build(members, activation=activation).double()
    num, horizon = 3, 4
    belief = random_belief(model, num, 3)
    generator = seeded(4)
    actions = torch.randn(horizon, num, ACTIONS, generator=generator).double()
    noise = torch.randn(horizon, members, num, 3, generator=generator).double()
    for given in (noise, None):
        got = to_numpy(model.rollout(belief, actions, given))
        assert got.shape == (horizon, members, num, 9)
        for e, cell in enumerate(cells(model)):
            for n in range(num):
                expected = ref.roll_out(
                    cell,
                    to_numpy(belief.deter[e, n]),
                    to_numpy(belief.stoch[e, n]),
                    to_numpy(actions[:, n]),
                    None if given is None else to_numpy(given[:, e, n]),
                )
                np.testing.assert_allclose(got[:, e, n], expected, **EXACT)


def test_an_episode_starts_from_zero() -> None:
    model = build(3)
    belief = model.initial(4)
    assert belief.deter.shape == (3, 4, 6)
    assert belief.stoch.shape == (3, 4, 3)
    assert not belief.features.any()


def test_the_layers_have_the_sizes_of_the_diagram() -> None:
    rssm = RSSM(action=2, embed=11, deter=7, stoch=3, hidden=5, activation="relu")
    shapes = {name: (layer.inputs, layer.outputs) for name, layer in rssm.layers().items()}
    assert shapes == {
        "input": (3 + 2, 5),
        "gates": (5 + 7, 2 * 7),
        "candidate": (5 + 7, 7),
        "prior_hidden": (7, 5),
        "prior_out": (5, 2 * 3),
        "posterior_hidden": (7 + 11, 5),
        "posterior_out": (5, 2 * 3),
    }
    assert tuple(shapes) == ref.LAYERS


def test_the_smallest_std_is_planets() -> None:
    assert MIN_STATE_STD == 0.1
