"""Which GPUs each application and the trainer have in each stage."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml

from orchestrator.check.size import SizingError
from orchestrator.installation.home import APPLICATIONS
from tests.orchestrator.plans import plan_of


def test_the_gpus_of_each_stage_of_the_paper_s_preset() -> None:
    """The Challenger's training needs a running Solver at the same time, the Solver's training needs no application."""
    gpus_by_stage = {stage.stage: stage.places for stage in plan_of("rzero-qwen3-4b").stages}
    assert gpus_by_stage == {
        "train_challenger": {"trainer": [0, 1, 2, 3], "solver": [4, 5, 6, 7]},
        "generate_questions": {"challenger": [0, 1, 2, 3, 4, 5, 6, 7]},
        "label_questions": {"solver": [0, 1, 2, 3]},
        "train_solver": {"trainer": [0, 1, 2, 3]},
        "evaluate": {"solver": [0, 1, 2, 3]},
        "audit_labels": {},
        "check_health": {},
    }


def test_applications_that_are_not_released_need_their_own_gpus() -> None:
    plan = plan_of("rzero-qwen3-4b", serving__release=False)
    assert plan.gpus == 4 + 4 + 8
    assert plan.stages[3].places.keys() == {"trainer", "solver", "challenger"}


def test_a_model_that_the_roles_share_is_in_the_solver_s_application_only() -> None:
    plan = plan_of("single-qwen3-4b")
    assert {stage.stage: stage.places for stage in plan.stages if stage.places} == {
        "train_challenger": {"trainer": [0, 1, 2, 3], "solver": [4, 5, 6, 7]},
        "generate_questions": {"solver": [0, 1, 2, 3]},
        "label_questions": {"solver": [0, 1, 2, 3]},
        "train_solver": {"trainer": [0, 1, 2, 3]},
        "evaluate": {"solver": [0, 1, 2, 3]},
    }
    assert [part.work.holder for part in plan.stages[1].parts] == ["solver"]
    assert not any("challenger" in memory.title for memory in plan.memory)
    not_released = plan_of("single-qwen3-4b", serving__release=False)
    assert not_released.stages[3].places.keys() == {"trainer", "solver"}


def test_a_fixed_model_has_its_own_gpu_where_the_method_needs_it(tmp_path: Path) -> None:
    tree = yaml.safe_load((APPLICATIONS / "rzero-8-gpus.yaml").read_text())
    judge = copy.deepcopy(tree["applications"][1]) | {"name": "judge"}
    del judge["deployments"]
    judge["args"]["llm_configs"][0]["deployment_config"] = {"num_replicas": 1}
    file = tmp_path / "judged.yaml"
    file.write_text(yaml.safe_dump({"applications": [*tree["applications"], judge]}))
    places = {
        method: {
            stage.stage: stage.places
            for stage in plan_of(
                "rzero-qwen3-4b",
                serving__applications=str(file),
                solver__reward__type=method,
                solver__signals__clusterer="served",
            ).stages
        }
        for method in ("rzero", "grpo_div")
    }
    assert places["grpo_div"]["train_solver"] == {"trainer": [0, 1, 2, 3], "judge": [4]}
    assert places["rzero"]["train_solver"] == {"trainer": [0, 1, 2, 3]}
    assert plan_of("rzero-qwen3-4b", 5, serving__applications=str(file)).gpus == 5


def test_an_embedded_engine_s_memory_depends_on_the_rows_in_its_serve_file(tmp_path: Path) -> None:
    tree = yaml.safe_load((APPLICATIONS / "embedded.yaml").read_text())
    tree["applications"][1]["args"] |= {"device": "cuda", "max_rows": 100}
    file = tmp_path / "rows.yaml"
    file.write_text(yaml.safe_dump(tree))
    applications = [
        memory for memory in plan_of("demo", serving__applications=str(file)).memory if "application" in memory.title
    ]
    caches = [line.how for memory in applications for line in memory.lines if line.what == "KV cache"]
    assert [" ".join(how.split()[:4]) for how in caches] == ["at most 768 answers", "at most 356 answers"]


def test_a_number_of_gpus_without_a_possible_layout_is_refused() -> None:
    with pytest.raises(SizingError, match="--gpus: there is no layout of up to 1: batches must divide"):
        plan_of("rzero-qwen3-4b", 1, trainer__tensor_parallel=2)


def test_the_proposed_layout_is_no_slower_than_the_preset_s() -> None:
    own, proposed = plan_of("rzero-qwen3-4b"), plan_of("rzero-qwen3-4b", 8)
    assert (own.problems, proposed.problems) == ((), ())
    assert proposed.hours[1] <= own.hours[1]
