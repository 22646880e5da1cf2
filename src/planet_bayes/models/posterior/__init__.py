"""The posterior over the weights of the dynamics: where the weights of P particles come from.

The paper approximates it by an ensemble (Section III-A). Others are one network with dropout masks,
and snapshots of one SG-MCMC chain. Register one of your own in `POSTERIORS` and name it in
``model.posterior``.
"""

from planet_bayes.models.posterior.base import (
    FittedApart,
    MemberLinear,
    OwnParameters,
    Posterior,
    PosteriorFactory,
)
from planet_bayes.models.posterior.dropout import Dropout
from planet_bayes.models.posterior.ensemble import Ensemble
from planet_bayes.models.posterior.sgmcmc import Snapshots

__all__ = [
    "POSTERIORS",
    "Dropout",
    "Ensemble",
    "FittedApart",
    "MemberLinear",
    "OwnParameters",
    "Posterior",
    "PosteriorFactory",
    "Snapshots",
]

POSTERIORS: dict[str, PosteriorFactory] = {
    "ensemble": Ensemble,
    "dropout": Dropout,
    "sgmcmc": Snapshots,
}
"""Posteriors by name."""
