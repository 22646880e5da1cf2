"""What TensorBoard shows of an evaluation besides its returns.

Everything here is of the evaluation's own episodes. It takes no step of the environment and draws
from no random stream but its own, so a run learns the same with it.
"""

from __future__ import annotations

from planet_bayes import extras
from planet_bayes.training.events import Problem
from planet_bayes.training.plan_record import PlanRecord
from planet_bayes.training.prediction import predict_evaluation
from planet_bayes.training.session import Session
from planet_bayes.training.strip import strip
from planet_bayes.types import Episode


def show_evaluation(run: Session, episode: Episode, plans: PlanRecord) -> None:
    """Show the components of the plans, the open-loop prediction and its band's coverage.

    Args:
        run: The run.
        episode: The evaluation's first episode.
        plans: The plans of all its episodes.
    """
    numbers = {f"evaluation/{name}": value for name, value in plans.summary().items()}
    found = predict_evaluation(run.agent.model, episode, run.config.seed, run.iteration)
    if found is not None:
        prediction, shares = found
        numbers |= {f"coverage_of_2_std/{name}": share for name, share in shares.items()}
        try:
            run.metrics.add_image("prediction", strip(prediction), run.iteration)
        except ImportError as error:
            run.report(Problem(f"no strip of predictions: {extras.advice(error) or error}"))
        except (OSError, ValueError) as error:
            run.report(Problem(f"no strip of predictions: {error}"))
    run.metrics.show(numbers, run.iteration)
