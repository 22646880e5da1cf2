"""Training: collect, learn, evaluate, checkpoint."""

from planet_bayes.training.loop import Event, Trainer, build_model, evaluate_agent

__all__ = ["Event", "Trainer", "build_model", "evaluate_agent"]
