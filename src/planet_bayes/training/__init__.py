"""Training: collect, learn, evaluate, checkpoint."""

from typing import TYPE_CHECKING

from planet_bayes.lazy import exports

if TYPE_CHECKING:
    from planet_bayes.training.events import Event
    from planet_bayes.training.loop import Trainer

__all__ = ["Event", "Trainer"]

__getattr__, __dir__ = exports(__name__, {"events": ("Event",), "loop": ("Trainer",)})
