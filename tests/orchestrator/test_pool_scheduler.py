"""Who of the trainings that share a cluster may begin: by hand, and what holds whatever is asked."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.pool.scheduler import PoolJob, decide

WAITING = PoolJob("a", "GPU", 4, 0, 0.0, 1.0, running=False)
RUNNING = replace(WAITING, key="r", since=0.0, running=True)


def test_priority_then_who_had_least_then_who_waited_longest() -> None:
    jobs = [
        replace(WAITING, key="late", since=9.0),
        replace(WAITING, key="early", since=2.0),
        replace(WAITING, key="had much", used=50.0, since=0.0),
        replace(WAITING, key="urgent", priority=1, used=99.0, since=10.0),
    ]
    assert decide(jobs, {"GPU": 16}).start == ["urgent", "early", "late", "had much"]
    assert decide(jobs, {"GPU": 8}).start == ["urgent", "early"]


def test_a_large_job_is_not_overtaken_by_small_ones() -> None:
    jobs = [RUNNING, replace(WAITING, key="large", units=8), replace(WAITING, key="small", units=1, since=2.0)]
    assert decide(jobs, {"GPU": 8}).start == []


def test_kinds_do_not_wait_for_each_other() -> None:
    jobs = [replace(WAITING, key="gpu", units=8), replace(WAITING, key="cpu", kind="CPU", units=1)]
    assert decide(jobs, {"GPU": 4, "CPU": 1}).start == ["cpu"]


def test_no_more_are_stopped_than_the_urgent_one_needs_the_lowest_and_youngest_first() -> None:
    running = [
        replace(RUNNING, key="old", units=2, since=1.0),
        replace(RUNNING, key="young", units=2, since=5.0),
        replace(RUNNING, key="lower", units=1, priority=-1, since=0.0),
        replace(RUNNING, key="equal", units=3, priority=2),
    ]
    urgent = replace(WAITING, key="urgent", units=3, priority=2)
    assert decide([*running, urgent], {"GPU": 8}).preempt == ["lower", "young"]
    # once they are told to, nobody else is
    told = [replace(job, preempted=job.key in ("lower", "young")) for job in running]
    assert decide([*told, urgent], {"GPU": 8}).preempt == []


def test_nobody_is_stopped_in_vain() -> None:
    running = [replace(RUNNING, units=2), replace(RUNNING, key="equal", units=6, priority=1)]
    decision = decide([*running, replace(WAITING, units=4, priority=1)], {"GPU": 8})
    assert (decision.start, decision.preempt) == ([], [])


@st.composite
def queues(draw: st.DrawFn) -> list[PoolJob]:
    count = draw(st.integers(0, 8))
    return [
        PoolJob(
            str(i),
            draw(st.sampled_from(["CPU", "GPU"])),
            draw(st.integers(1, 8)),
            draw(st.integers(-2, 2)),
            draw(st.floats(0, 100)),
            draw(st.floats(0, 100)),
            draw(st.booleans()),
        )
        for i in range(count)
    ]


@settings(max_examples=300)
@given(queues(), st.integers(0, 16), st.integers(0, 16))
def test_what_is_there_is_never_given_twice_and_all_get_their_turn(jobs: list[PoolJob], cpus: int, gpus: int) -> None:
    capacity = {"CPU": float(cpus), "GPU": float(gpus)}
    held = {kind: sum(job.units for job in jobs if job.kind == kind and job.running) for kind in capacity}
    decision = decide(jobs, capacity)
    by_key = {job.key: job for job in jobs}
    for kind, there in capacity.items():
        begun = sum(by_key[key].units for key in decision.start if by_key[key].kind == kind)
        assert begun == 0 or held[kind] + begun <= there
    assert all(not by_key[key].running for key in decision.start)
    assert all(by_key[key].running for key in decision.preempt)
    # nothing but the trainings: as those at work end, whoever can ever fit begins
    left = [replace(job, running=False) for job in jobs if job.units <= capacity[job.kind]]
    for _ in range(len(left)):
        begins = set(decide(left, capacity).start)
        assert begins or not left
        left = [job for job in left if job.key not in begins]
    assert left == []
