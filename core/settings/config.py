"""The configuration of a run, `RunConfig`, of which there are two kinds, and its parts about questions and evaluation.

Defaults are the papers' (R-Zero sections 2 and D.1, appendix E.1).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from core.challenger.gates import AnyGate, Gate
from core.settings.audit import Audit
from core.settings.costs import Budget, Rates
from core.settings.evaluation import OWN_PROMPTS, EarlyStopping, Evaluation
from core.settings.prompts import Prompts
from core.settings.serving import Serving
from core.settings.trackers import Trackers
from core.settings.trainers import LocalSettings, TrainerSettings
from core.settings.training import Challenger, Labelled, PlannedTraining, Sampling, SelfTrainedSolver, Solver
from core.statistics.alerts import Alerts
from core.statistics.guard import Guard
from core.types import TINY_BASES, Denominator, Flow, Role
from core.validation.bounds import (
    Answers,
    Iterations,
    Positive,
    Seed,
    SettingsTable,
    Share,
    Tokens,
)

_SUPERVISED = "supervised learns from true labels: expected prompts with labels = 'given'"


class Votes(SettingsTable):
    """How the Solver votes on questions before it trains (R-Zero 2.3; SRT 5.2), and how long a question may be."""

    votes: Answers = 10  # m
    denominator: Denominator = "all"
    max_question_chars: Tokens = 2000
    sampling: Sampling = Sampling()

    @property
    def limits(self) -> tuple[float, float] | None:
        """The lowest and the highest p_hat that are kept. None: every question that has a majority is kept."""
        return None


class Replay(SettingsTable):
    """Kept questions of earlier iterations that the Solver trains on again.

    R-Diverse (arXiv 2602.13103) replays 0.3 of each of the Solver's batches; here it is the share of all questions that
    it trains on, from which the batches are drawn. Cumulative self-improvement (2502.01612) keeps all rounds. The
    `label` is that of the first vote, or of the newest Solver, which votes on these questions again.
    """

    share: float = Field(0.3, gt=0, lt=1)  # of all questions that the Solver trains on, if there are so many
    iterations: Positive | None = None  # the newest ones before this one; None: all
    label: Literal["first", "newest"] = "first"


class Dataset(Votes):
    """R-Zero 2.3: how the Solver's questions are made, labelled and filtered."""

    candidates: Positive = 8000  # N
    filtered: bool = True  # False is the ablation of Table 3: keep every question with a majority
    delta: float = Field(0.25, ge=0, le=0.5)
    band: tuple[Share, Share] | None = None  # instead of 1/2 -+ delta, for releases whose band is not symmetric
    # A candidate with one of these in its question is malformed. The Challenger's reward does not look at them.
    refused_texts: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    replay: Replay | None = None
    # What the Solver learns from the kept questions: their votes' label or, a control, what a program of a tiny world
    # knows. Questions without an answer are left out then.
    labels: Literal["votes", "exact"] = "votes"
    # CARE (arXiv 2605.25864): the share of the kept questions that get what the program knows. They are those whose
    # votes let expect most of it (`core.questions.true_labels`).
    bought: float = Field(0.0, ge=0, lt=1)
    gates: tuple[AnyGate, ...] = ()  # which of the questions that the band kept are admitted, one gate after the other

    @property
    def limits(self) -> tuple[float, float] | None:
        return (self.band or (0.5 - self.delta, 0.5 + self.delta)) if self.filtered else None

    @model_validator(mode="after")
    def _band_in_order(self) -> Dataset:
        if self.band is not None and self.band[0] > self.band[1]:
            raise ValueError(f"band: expected [low, high] with low <= high, got {list(self.band)}")
        return self

    @model_validator(mode="after")
    def _a_gate_of_each_type(self) -> Dataset:
        types = [gate.type for gate in self.gates]
        if len({*types}) < len(types):  # a verdict names its gate by its type
            raise ValueError(f"gates: expected each type once, got {', '.join(types)}")
        return self


class Retention(SettingsTable):
    """Which checkpoints keep their files after an iteration (docs/storage.md). Their rows and figures stay always.

    The base model, the last checkpoints and the best ones are always kept, because the run may go on from them. A
    number k also keeps those of every kth iteration.
    """

    keep: Literal["all", "best_and_last"] | Positive = "all"


class _Run(SettingsTable):
    """The settings that both kinds of run have. The file name of the preset is not one of them: two presets with equal
    values give equal configurations."""

    # Of each training step, the prompts whose rollouts are stored: 10 MB of text in a training of R-Zero's size; all of
    # its 128 would be 157 MB.
    rollout_prompts: ClassVar[int] = 8

    kind: Flow  # the flow that runs it
    seed: Seed = 0
    iterations: Iterations = 3
    base_model: str = "micro"  # "micro", "micro-long", or a folder with a Hugging Face model in safetensors
    rollout_text: Literal["none", "kept", "all"] = "kept"
    dataset: Votes = Votes()
    solver: Solver = Solver()
    evaluation: Evaluation = Evaluation()
    audit: Audit = Audit()
    early_stopping: EarlyStopping | None = None
    guard: Guard = Guard()
    alerts: Alerts = Alerts()
    serving: Serving = Serving()
    trainer: TrainerSettings = LocalSettings()
    checkpoints: Retention = Retention()
    rates: Rates = Rates()
    budget: Budget = Budget()
    trackers: Trackers = Trackers()

    @model_validator(mode="after")
    def _money_has_a_price(self) -> Self:
        if self.budget.money is not None and not self.rates.known:
            raise ValueError("budget.money: expected prices in [rates], got none")
        return self

    @property
    def test_time(self) -> bool:
        """Whether the Solver trains on the benchmark's own questions with their answers hidden. This is test-time
        training (TTRL; SRT 4.2), and its accuracy there is not held-out accuracy."""
        return False

    @property
    def gates(self) -> tuple[Gate, ...]:
        """The gates between the votes on the Solver's questions and its training."""
        return ()

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles that have models in this run."""
        return ("solver",)

    def application(self, role: Role) -> Role:
        """The Serve application with the model that plays `role`. Roles with the same application share one model."""
        return role

    @property
    def application_samples(self) -> bool:
        """Whether the application of the trained role samples the rollouts of a training."""
        return isinstance(self.trainer, LocalSettings) and self.trainer.sampler == "application"

    @property
    def trainings(self) -> tuple[PlannedTraining, ...]:
        """The trainings of an iteration, in order."""
        return (PlannedTraining("solver", self.solver.training, self.solver.reward, self.solver.rollouts),)

    @property
    def prompt_sets(self) -> tuple[Prompts, ...]:
        """The prompt sets that the Solver trains on, if any."""
        return ()

    @property
    def has_branch(self) -> bool:
        """Whether each iteration's Solver is also trained on labelled data apart from the loop."""
        return False

    @property
    def rounds_are_one_training(self) -> bool:
        """Whether AdamW and the schedule of the learning rate go on from iteration to iteration."""
        return False

    def keeps_text(self, *, kept: bool) -> bool:
        """Whether the text of a rollout is stored; `kept`: the loop learns from it, or from its question."""
        return self.rollout_text == "all" or (self.rollout_text == "kept" and kept)

    @property
    def solver_steps(self) -> int:
        """The steps of one training of the Solver, over which the schedule of its learning rate goes."""
        return self.solver.training.steps

    @model_validator(mode="after")
    def _one_worker_in_the_run_s_process(self) -> Self:
        if isinstance(self.trainer, LocalSettings) and not self.trainer.own_processes:
            for planned in self.trainings:
                if planned.training.workers > 1:
                    raise ValueError(
                        f"{planned.table}.training.workers: expected 1, because trainer.own_processes is false; got "
                        f"{planned.training.workers}"
                    )
        return self

    @model_validator(mode="after")
    def _adapters_are_whole_and_new(self) -> Self:
        if not (isinstance(self.trainer, LocalSettings) and self.trainer.lora):
            return self
        for planned in self.trainings:
            if planned.training.sharded and planned.training.workers > 1:
                raise ValueError(f"trainer.lora: expected none, because {planned.table}.training.sharded is true")
        if self.rounds_are_one_training:
            raise ValueError(
                "trainer.lora: expected none, because solver.training.optimiser is 'continued', and each round's "
                "adapters are new; 'fresh' goes with them"
            )
        return self

    @model_validator(mode="after")
    def _warmup_ends(self) -> Self:
        for planned in self.trainings:
            steps = self.solver_steps if planned.table == "solver" else planned.training.steps
            if (warmup := planned.training.warmup_steps) < steps:
                continue
            if planned.table == "labelled":
                raise ValueError(
                    f"labelled.steps: expected more than solver.training.warmup_steps = {warmup}, got {steps}"
                )
            raise ValueError(
                f"solver.training.warmup_steps: expected fewer than the {steps} steps of the training, got {warmup}"
            )
        return self


class CoEvolution(_Run):
    """R-Zero's loop: a Challenger writes the questions that the Solver learns from.

    With `shared`, one model plays both roles (Single-R-Zero, R-Zero G). Its checkpoints are one chain: each training
    starts from the checkpoint that the training before it made, whichever role that trained. G says only that "a single
    model is tasked with performing both roles". What it leaves open is as with two models (2.2 to 2.4, A.1). The roles
    are trained one after the other, each with its own steps, and the KL is to the model that the training started from.
    While the Challenger's role is trained, a frozen copy of that model answers the questions. The candidates are
    answered by the current model, which is the one that wrote them.
    """

    kind: Literal["co_evolve"] = "co_evolve"
    shared: bool = False
    challenger: Challenger = Challenger()
    dataset: Dataset = Dataset()
    labelled: Labelled | None = None

    @property
    def votes_before_training(self) -> bool:
        """Whether the Solver's questions are voted on before it trains."""
        return True

    @property
    def gates(self) -> tuple[Gate, ...]:
        return self.dataset.gates

    @property
    def roles(self) -> tuple[Role, ...]:
        return ("challenger", "solver")

    def application(self, role: Role) -> Role:
        return "solver" if self.shared else role

    @property
    def trainings(self) -> tuple[PlannedTraining, ...]:
        challenger, labelled = self.challenger, self.labelled
        challenger_training = PlannedTraining("challenger", challenger.training, challenger.reward, challenger.rollouts)
        trainings = (*([challenger_training] if challenger.trained else []), *super().trainings)
        if labelled is None or labelled.share is not None:
            return trainings
        training, reward = labelled.training(self.solver), labelled.reward(self.solver)
        rollouts = training.rollouts_per_prompt or reward.rollouts
        return (*trainings, PlannedTraining("labelled", training, reward, rollouts))

    @property
    def prompt_sets(self) -> tuple[Prompts, ...]:
        return () if self.labelled is None else (self.labelled.prompts,)

    @property
    def has_branch(self) -> bool:
        return self.labelled is not None and not self.labelled.chained and self.labelled.share is None

    @model_validator(mode="after")
    def _has_a_world(self) -> CoEvolution:
        dataset, tiny = self.dataset, ", ".join(TINY_BASES)
        for setting, got, elsewhere in (
            ("challenger.source", self.challenger.source, "model"),
            ("dataset.labels", dataset.labels, "votes"),
            ("dataset.bought", dataset.bought, 0),
        ):
            if got != elsewhere and self.base_model not in TINY_BASES:
                raise ValueError(
                    f"{setting}: expected {elsewhere!r} with base_model = {self.base_model!r}; {got!r} goes with {tiny}"
                )
        return self

    @model_validator(mode="after")
    def _stops_on_a_benchmark(self) -> CoEvolution:
        if self.early_stopping is not None and self.early_stopping.benchmark == OWN_PROMPTS:
            raise ValueError("early_stopping.benchmark: expected a benchmark, as no prompts are given, got 'prompts'")
        return self

    @model_validator(mode="after")
    def _an_application_for_each_model(self) -> CoEvolution:
        if self.shared and self.challenger.trained and self.application_samples:
            raise ValueError(
                "trainer.sampler: expected 'embedded' with shared = true, because the only application answers the "
                "Challenger's questions while it is trained; got 'application'"
            )
        return self

    @model_validator(mode="after")
    def _gates_can_be_told(self) -> CoEvolution:
        needing = {gate.needs: gate.type for gate in self.gates}
        if "other_solvers" in needing and (keep := self.checkpoints.keep) != "all":
            asks = f"the gate {needing['other_solvers']} asks earlier Solvers"
            raise ValueError(f"checkpoints.keep: expected 'all', because {asks}, got {keep!r}")
        if "audits" in needing and self.audit.oracle is None:
            uses = f"the gate {needing['audits']} uses its verdicts"
            raise ValueError(f"audit.oracle: expected an oracle, because {uses}, got 'none'")
        return self

    @model_validator(mode="after")
    def _no_true_labels(self) -> CoEvolution:
        if self.solver.reward.type == "supervised":
            raise ValueError("solver.reward: " + _SUPERVISED)
        return self


class SelfTraining(_Run):
    """A Solver that learns from a given prompt set by one of the papers' methods; `iterations` are rounds."""

    kind: Literal["self_train"] = "self_train"
    prompts: Prompts
    solver: SelfTrainedSolver = SelfTrainedSolver()

    @property
    def votes_before_training(self) -> bool:
        """Whether the prompts are voted on before the first round."""
        return self.prompts.voted

    @property
    def test_time(self) -> bool:
        return self.prompts.file == "benchmark"

    @property
    def prompt_sets(self) -> tuple[Prompts, ...]:
        return (self.prompts,)

    @property
    def rounds_are_one_training(self) -> bool:
        return self.solver.training.optimiser == "continued"

    @property
    def solver_steps(self) -> int:
        return super().solver_steps * (self.iterations if self.rounds_are_one_training else 1)

    @model_validator(mode="after")
    def _labels_for_the_method(self) -> SelfTraining:
        method, stopping = self.solver.reward, self.early_stopping
        if method.type == "supervised" and self.prompts.labels != "given":
            raise ValueError("solver.reward: " + _SUPERVISED)
        if self.test_time and stopping and stopping.benchmark == self.evaluation.benchmark:
            raise ValueError(
                f"early_stopping.benchmark: expected another benchmark than {stopping.benchmark!r}, which is trained on"
            )
        if stopping and stopping.benchmark == OWN_PROMPTS and (self.test_time or not self.prompts.truths_known):
            raise ValueError(
                "early_stopping.benchmark: 'prompts' holds out a share of the prompts: expected prompts.answer, the "
                "column of their true answers, and prompts.file other than 'benchmark'"
            )
        if self.prompts.labels == "none" and "label" in method.needs:
            raise ValueError(
                f"prompts.labels: {method.type} learns from labels that come with the questions: expected 'given' or "
                "'offline', got 'none'"
            )
        return self


RunConfig = CoEvolution | SelfTraining
