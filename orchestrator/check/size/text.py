"""A plan as text for a terminal of 100 columns, and as JSON: the same figures."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from orchestrator.check.needs import ADD_A_JUDGE, NO_JUDGE, lacks_a_judge
from orchestrator.check.size.assumptions import FLOAT32_SHARE, GIB
from orchestrator.check.size.calculate import Part, Plan, Range, StagePlan, advice
from orchestrator.check.size.disk import disk_bytes, disk_lines
from orchestrator.check.size.measured import Measured
from orchestrator.check.size.memory import USABLE, Line, power
from orchestrator.check.size.work import BATCH

WIDTH = 100
_HOLDERS = ("trainer", "solver", "challenger")


def page(plan: Plan, of_runs: Measured | None = None) -> str:
    """All of it, section by section. `of_runs`: what finished runs took."""
    of_store = _listed([of_runs.sentence(plan.config.iterations)]) if of_runs else []
    held = [[*_head(plan), *of_store], _model(plan), _who(plan), _memory(plan), _disk(plan)]
    sections = [*held, _tokens(plan), _hours(plan), _assumed(plan)]
    return "\n\n".join("\n".join(section) for section in sections)


def as_json(plan: Plan, of_runs: Measured | None = None) -> dict[str, Any]:
    """What `page` shows, and the layout's settings."""
    layout, shape = plan.layout, plan.shape
    return {
        "preset": plan.preset,
        "gpus": plan.gpus,
        "proposed": plan.proposed,
        "fits": not plan.problems,
        "problems": list(plan.problems),
        "advice": advice(plan),
        "fits_with_advice": bool(plan.remedy),
        "notes": _notes(plan),
        "model": {**asdict(shape), "parameters": shape.parameters, "kv_bytes": shape.kv_bytes(), "source": plan.source},
        "layout": asdict(layout),
        "memory": [{**asdict(part), "gib": part.gib} for part in plan.memory],
        "fullest_gpu_gib": plan.fullest,
        "disk": [asdict(line) for line in disk_lines(plan.config)],
        "disk_gib": disk_bytes(plan.config) / GIB,
        "before": [_stage_json(stage) for stage in plan.before],
        "stages": [_stage_json(stage) for stage in plan.stages],
        "iterations": plan.config.iterations,
        "hours": _range_json(plan.hours),
        "run_hours": _range_json(plan.run_hours),
        "measured": of_runs and asdict(of_runs),
        "assumptions": asdict(plan.assumed),
    }


def _stage_json(stage: StagePlan) -> dict[str, Any]:
    return {
        "stage": stage.stage,
        "gpus": stage.places,
        "working": list(stage.working),
        "hours": _range_json(stage.hours),
        "parts": [
            {
                **asdict(part.work),
                "devices": part.devices,
                "million_tokens": _range_json(part.tokens),
                "petaflops": _range_json(part.petaflops),
                "waiting_hours": part.waiting,
                "hours": _range_json(part.hours),
            }
            for part in stage.parts
        ],
    }


def _range_json(interval: Range) -> dict[str, float]:
    return {"typical": interval[0], "maximum": interval[1]}


def _head(plan: Plan) -> list[str]:
    cards = f"{plan.gpus} GPU{'s' * (plan.gpus != 1)} of {plan.assumed.gpu_memory:g} GiB" if plan.gpus else "no GPU"
    how = "proposed for" if plan.proposed else "as it is set, on"
    lines = [f"{plan.preset}, {how} {cards}"]
    if plan.problems:
        change = "With these settings it fits:" if plan.remedy else "What to change:"
        lines += ["It does not fit as it is set:", *_listed(plan.problems), change, *_listed(advice(plan))]
    elif plan.gpus:
        lines.append("It fits, by this arithmetic.")
    if plan.proposed:
        lines += ["Settings:", *_listed(_settings(plan))]
    return [*lines, *_listed(_notes(plan))]


def _settings(plan: Plan) -> list[str]:
    """What to set for a proposed layout, in the preset and in its Serve file."""
    trainer, file = plan.layout.trainer, plan.config.serving.applications
    setting = f"gpus_per_node = {trainer.gpus // trainer.nodes}"
    if trainer.nodes > 1:
        setting = f"nodes = {trainer.nodes}, {setting}"
    replicas = ", ".join(f"{app.name} {app.replicas}" for app in plan.layout.apps)
    return [
        f"[trainer] {setting}, update_micro_batch = {trainer.micro_batch}, offload = {str(trainer.offload).lower()}",
        f"[serving] release = true; num_replicas in a copy of deploy/serve/{file}.yaml: {replicas}",
    ]


def _notes(plan: Plan) -> list[str]:
    notes, trainer = [], plan.layout.trainer
    if lacks_a_judge(plan.config):
        notes.append(f"no judge is set, so {NO_JUDGE}: {ADD_A_JUDGE}")
    if trainer.nodes > 1:
        notes.append("a trainer of several nodes needs a folder that all of them see as the home (docs/easyr1.md)")
    if any(app.unreserved for app in plan.layout.apps):
        notes.append(
            "the trainer reserves whole GPUs of Ray, so applications on its GPU reserve none and share its memory, "
            "as in deploy/serve/rzero-1-gpu.yaml; not tried on a GPU"
        )
    if trainer.kind == "easyr1" and trainer.device == "gpu":
        notes.append("EasyR1 and vLLM have not been run on a GPU by us yet: these are sums, not experience")
    if trainer.in_float32:
        notes.append("the hours are sums, not experience; docs/gpu.md has what was measured of the embedded trainer")
    if trainer.device == "cpu":
        notes.append("with a model this small most of the time is not FLOPs: take the hours for an order of magnitude")
    return notes


def _model(plan: Plan) -> list[str]:
    shape, embedded = plan.shape, plan.shape.embedding
    tied = "shared by input and output" if shape.tie_word_embeddings else "input and output"
    return [
        "Model",
        *_listed([plan.source]),
        _sum_line(f"{shape.vocab_size:,} tokens x {shape.hidden_size:,} ({tied})", "embeddings", embedded),
        _sum_line(
            f"{shape.num_hidden_layers} layers x {shape.layer:,} + the last norm's {shape.hidden_size:,}",
            "layers",
            shape.parameters - embedded,
        ),
        _sum_line("", "parameters P", shape.parameters),
    ]


def _sum_line(how: str, what: str, value: int) -> str:
    return f"  {what:<14}{how:<66}{value:>18,}"


def _who(plan: Plan) -> list[str]:
    """The table stage x holder. A `*` works; the others are up."""
    rows = [["stage", *(f"{name}{'' if name == 'trainer' else ' app'}" for name in _HOLDERS)]]
    rows[0] += ["fullest GPU, GiB"] if plan.gpus else []
    up = {holder for stage in plan.stages for holder in stage.places}
    others = [app.name for app in plan.layout.apps if app.name in up - set(_HOLDERS)]
    rows[0][4:4] = others
    for stage in plan.stages:
        cells = [_cell(stage, name) for name in (*_HOLDERS, *others)]
        fullest = plan.fullest.get(stage.stage)
        rows.append([stage.stage, *cells, *([f"{fullest:.1f}" if fullest else ""] if plan.gpus else [])])
    title = "Who holds which GPU in an iteration (* works; GPUs are numbered from 0)"
    if not plan.gpus:
        title = "Who works when in an iteration (* works; all on the CPU)"
    return [title, *_table(rows)]


def _cell(stage: StagePlan, holder: str) -> str:
    star = "*" if holder in stage.working else ""
    gpus = stage.places.get(holder)
    if gpus:
        return _numbers(gpus) + star
    return f"CPU{star}" if star else "-"


def _numbers(gpus: Sequence[int]) -> str:
    """0-3 of 0, 1, 2, 3."""
    runs: list[list[int]] = []
    for gpu in sorted(set(gpus)):
        if runs and gpu == runs[-1][-1] + 1:
            runs[-1].append(gpu)
        else:
            runs.append([gpu])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _memory(plan: Plan) -> list[str]:
    lines = [f"Memory, GiB (of a GPU {USABLE:.0%} can be used: {USABLE * plan.assumed.gpu_memory:.1f})"]
    if not plan.gpus:
        lines = ["Memory of the machine, GiB, at most"]
    shown: list[tuple[Line, ...]] = []
    for part in plan.memory:
        if part.lines in shown:
            lines.append(f"  {part.title}: the same")
            continue
        shown.append(part.lines)
        lines += [f"  {part.title}", *_sum_of(part.lines), *_wrapped(part.note, "    ")]
    return lines


def _disk(plan: Plan) -> list[str]:
    return ["Disk of the home, GiB, at most", *_sum_of(disk_lines(plan.config))]


def _sum_of(lines: Sequence[Line]) -> Iterator[str]:
    for line in lines:
        yield from _fitted(f"    {line.what:<31}", line.how, f"{line.gib:>8.1f}")
    yield f"    {'in all':<31}{'':<{WIDTH - 43}}{sum(line.gib for line in lines):>8.1f}"


def _tokens(plan: Plan) -> list[str]:
    rows = [["who", "answers", "where from", "each", "typical", "at most"]]
    for stage in plan.stages:
        if stage.parts:
            rows.append([stage.stage, *[""] * 5])
        rows += [_token_row(part) for part in stage.parts]
    sampled = [part for stage in plan.stages for part in stage.parts if not part.work.training]
    total = [f"{sum(part.tokens[i] for part in sampled):,.1f}" for i in (0, 1)]
    rows.append(["sampled in all", f"{sum(part.work.answers for part in sampled):,}", "", "", *total])
    share = f"{plan.assumed.typical_share:.0%}"
    title = f"Tokens of answers in an iteration, millions: answers x max_tokens, {share} of it typically"
    return [title, *_table(rows)]


def _token_row(part: Part) -> list[str]:
    work = part.work
    return [_done(part), f"{work.answers:,}", work.why, f"{work.max_tokens:,}", *(f"{t:,.1f}" for t in part.tokens)]


def _done(part: Part) -> str:
    return f"  {part.work.holder} {'trains' if part.work.training else 'samples'}"


def _hours(plan: Plan) -> list[str]:
    assumed, unit = plan.assumed, "GPUs" if plan.gpus else "cores"
    rows = [["who", "FLOPs a token", "FLOPs, typical", unit, "rounds", "hours, typical", "at most"]]
    for stage in plan.stages:
        if stage.parts:
            rows.append([stage.stage, "", "", "", "", *_two(stage.hours)])
        for part in stage.parts:
            flops = f"{2 * (part.work.passes if part.work.training else 1)} P"
            rounds = f"{part.work.rounds:,}{'*' * _waits(part)}" if part.work.rounds else ""
            spent = power(part.petaflops[0] * 1e15)
            rows.append([_done(part), flops, spent, f"{part.devices}", rounds, *_two(part.hours)])
    rows.append(["an iteration", "", "", "", "", *_two(plan.hours)])
    rows.append([f"the run ({plan.config.iterations} iterations)", "", "", "", "", *_two(plan.run_hours)])
    peak = assumed.peak_tflops if plan.gpus else assumed.cpu_peak_tflops
    speed = f"{unit} x {peak:g}e12 x {assumed.mfu_sample:g} sampling or {assumed.mfu_train:g} training"
    if plan.layout.trainer.in_float32:
        speed += f", x {FLOAT32_SHARE:.3f} in the trainer,"
    again = ", and 2 P for the forward pass that is made again" if plan.layout.trainer.checkpointed else ""
    note = (
        f"hours = FLOPs / ({speed} x 3600). Training: 6 P forward and backward, and 2 P each for the log-probabilities "
        f"of the reference and of the old policy (where they are computed apart){again}. Prompts are counted in."
    )
    if any(_waits(part) for stage in plan.stages for part in stage.parts):
        note += (
            f" *: rounds x max_tokens x {assumed.token_seconds:g} s, which is more: a stage asks "
            f"{BATCH} x serving.batches questions at a time and waits for the longest answer, a training all that "
            "it samples at once, and more GPUs do not help."
        )
    return ["Hours (assumed speeds, not measured ones)", *_table(rows), *_wrapped(note)]


def _waits(part: Part) -> bool:
    """Whether its typical hours are those of its rounds."""
    return part.waiting > 0 and part.hours[0] == part.waiting


def _two(interval: Range) -> list[str]:
    return [f"{value:.2f}" if value >= 0.1 else f"{value:.2g}" for value in interval]


def _assumed(plan: Plan) -> list[str]:
    sentences = plan.assumed.sentences("gpu" if plan.gpus else "cpu", plan.layout.trainer.in_float32)
    parameters, sampling = plan.shape.parameters, plan.assumed.mfu_sample
    peak = plan.assumed.peak_tflops if plan.gpus else plan.assumed.cpu_peak_tflops
    speed = peak * 1e12 * sampling / (2 * parameters)
    device = "GPU" if plan.gpus else "core"
    sentences.insert(
        1,
        f"which is {speed:,.0f} sampled tokens a second and {device}: put what you measure in its place (--mfu-sample)",
    )
    return ["Assumed (each has an option: `coevo plan --help`)", *_listed(sentences)]


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = (
            cell.rjust(width) if _numeric(cell, i, row) else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield ("  " + "  ".join(cells)).rstrip()


def _numeric(cell: str, at: int, row: Sequence[str]) -> bool:
    return at >= len(row) - 2 or cell.strip("*").replace(",", "").replace(".", "").isdigit()


def _fitted(start: str, how: str, end: str) -> list[str]:
    """One line, or two where the middle is long."""
    room = WIDTH - len(start) - len(end)
    if len(how) < room:
        return [f"{start}{how:<{room}}{end}"]
    first, *rest = textwrap.wrap(how, room - 1)
    return [f"{start}{first:<{room}}{end}", *(" " * len(start) + line for line in rest)]


def _listed(sentences: Sequence[str]) -> list[str]:
    return [line for sentence in sentences for line in _wrapped(sentence, "- ")]


def _wrapped(text: str, start: str = "  ") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False)
