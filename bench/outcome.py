"""Asks one question: its answer, or why there is none, how long it took, and the other load meanwhile."""

from __future__ import annotations

import time
import traceback
from dataclasses import asdict, dataclass
from typing import Any

from bench import questions
from bench.harness import Answer, Scale
from bench.machine import Noise, NoiseMeter


@dataclass(slots=True)
class Outcome:
    name: str
    title: str
    noise: Noise
    seconds: float
    answer: Answer | None = None
    failure: str = ""

    def as_data(self) -> dict[str, Any]:
        """For JSON: every round of every figure, so that others can judge for themselves."""
        return {
            "name": self.name,
            "title": self.title,
            "noise_in_cores": {key: round(value, 3) for key, value in self.noise._asdict().items()},
            "seconds": round(self.seconds, 1),
            "failure": self.failure or None,
            **({} if self.answer is None else asdict(self.answer)),
        }


def ask(name: str, scale: Scale) -> Outcome:
    """Ask one question. An error is stored as its failure, so that the other questions are still asked."""
    question = questions.load(name)
    meter, started = NoiseMeter(), time.monotonic()
    answer, failure = None, ""
    try:
        answer = question.ask(scale)
    except Exception as error:
        traceback.print_exc()
        failure = f"{type(error).__name__}: {error}"
    return Outcome(name, question.TITLE, meter.noise(), time.monotonic() - started, answer, failure)
