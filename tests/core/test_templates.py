from __future__ import annotations

from core.settings.config import CoEvolution
from core.settings.evaluation import Benchmark
from core.settings.templates import RZERO_CHALLENGER, RZERO_SOLVER, ChallengerTemplate, SolverTemplate

# R-Zero, appendix E.2, typed from the paper; the templates may break lines elsewhere.
PAPER_SOLVER = r"Please reason step by step, and put your final answer within \boxed{}."
PAPER_CHALLENGER = r"""
You are an expert competition-math problem setter. FIRST, in your private scratch-pad, think step-by-step to design
a brand-new, non-trivial problem. The problem could come from any field of mathematics, including but not limited to
algebra, geometry, number theory, combinatorics, prealgebra, probability, statistics, and calculus. Aim for a difficulty
such that fewer than 30% of advanced high-school students could solve it. Avoid re-using textbook clichés or famous
contest problems. THEN, without revealing any of your private thoughts, output **exactly** the following two blocks:
<question> {The full problem statement on one or more lines} </question> \boxed{final_answer}
Do NOT output anything else—no explanations, no extra markup.
"""
PAPER_CHALLENGER_USER = """
Generate one new, challenging reasoning question now. Remember to format the output exactly as instructed.
"""


EXAMPLE = "<question>What is 1 + 2?</question>\n\\boxed{3}"


def test_the_defaults_are_the_paper_s_word_for_word() -> None:
    system, user = RZERO_CHALLENGER.messages()
    assert system["content"].split() == PAPER_CHALLENGER.split()
    assert user["content"].split() == PAPER_CHALLENGER_USER.split()
    assert (system["role"], user["role"]) == ("system", "user")
    assert RZERO_SOLVER.messages("What is 2 + 2?") == [
        {"role": "system", "content": PAPER_SOLVER},
        {"role": "user", "content": "What is 2 + 2?"},
    ]
    config = CoEvolution()
    assert (config.challenger.template, config.solver.template) == (RZERO_CHALLENGER, RZERO_SOLVER)


def test_a_solver_s_chat_has_the_system_message_the_examples_and_the_question() -> None:
    examples = [{"question": "1 + 1?", "answer": r"\boxed{2}"}]
    template = SolverTemplate.model_validate({"system": "Be brief.", "user": "Q: {question}", "examples": examples})
    assert template.messages("2 + {question}?") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Q: 1 + 1?"},
        {"role": "assistant", "content": r"\boxed{2}"},
        {"role": "user", "content": "Q: 2 + {question}?"},
    ]
    assert SolverTemplate(system="").messages("x") == [{"role": "user", "content": "x"}]


def test_a_challenger_s_examples_are_answers_to_earlier_requests() -> None:
    template = ChallengerTemplate(system="", user="Pose one.", examples=(EXAMPLE,))
    assert template.messages() == [
        {"role": "user", "content": "Pose one."},
        {"role": "assistant", "content": EXAMPLE},
        {"role": "user", "content": "Pose one."},
    ]
    assert template.example_questions == ["What is 1 + 2?"]


def test_a_benchmark_is_asked_with_the_solver_s_template_unless_it_has_a_prompt_of_its_own() -> None:
    brief = SolverTemplate.model_validate({"system": "", "user": "Q: {question}"})
    assert Benchmark(title="b", source="s").asked_with(brief).template == brief
    assert Benchmark(title="b", source="s").template == RZERO_SOLVER
    own = {"system": "Choose.", "prompt": "{question}!", "few_shot": [{"question": "1?", "answer": "A"}]}
    for name, value in own.items():
        benchmark = Benchmark.model_validate({"title": "b", "source": "s", name: value})
        assert benchmark.asked_with(brief) == benchmark
    whole = Benchmark.model_validate({"title": "b", "source": "s", **own}).template
    assert (whole.system, whole.user, whole.examples[0].answer) == ("Choose.", "{question}!", "A")
