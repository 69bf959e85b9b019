"""`python -m benchmarks rest` at a small size: the generator, the served API, the load and the exports, on SQLite."""

from __future__ import annotations

from benchmarks import rest
from benchmarks.rest_load import Load, Timing, requests
from benchmarks.rest_store import Shape, shape_of


def test_every_route_is_measured_and_no_request_fails() -> None:
    figures = rest.run("2000", seconds=0.5, on_postgresql=False)
    assert figures["store"] == {"runs": 2, "questions": 2_100, "votes": 20_000}
    sqlite = figures["sqlite"]
    assert (sqlite["failed"], sqlite["without_pause"]["failed"], sqlite["offered_per_s"]) == (0, 0, 200)
    assert sqlite["requests"] == sqlite["every_route"]["n"] == sum(route["n"] for route in sqlite["routes"].values())
    pages = [route["n"] for name, route in sqlite["routes"].items() if name.startswith("page")]
    assert 0 < sqlite["page_of_questions"]["n"] <= sum(pages)
    assert all(route["p50_ms"] <= route["p99_ms"] for route in sqlite["routes"].values())
    exports = sqlite["exports"]
    assert (exports["jsonl"]["rows"], exports["parquet"]["rows"]) == (2_100, 2_100)
    assert exports["jsonl"]["megabytes"] > exports["parquet"]["megabytes"] > 0


def test_the_shape_has_the_rows_that_were_asked_for() -> None:
    assert shape_of(1_000_000).counts == {"runs": 25, "questions": 1_050_000, "votes": 10_000_000}
    assert shape_of(2_000) == Shape(runs=2, iterations=5, voted=200)


def test_requests_are_the_same_for_the_same_seed() -> None:
    first, again, other = (requests(shape_of(2_000), seed) for seed in (1, 1, 2))
    first_requests = [next(first) for _ in range(200)]
    assert first_requests == [next(again) for _ in range(200)]
    assert first_requests != [next(other) for _ in range(200)]


def test_figures_count_failed_requests_and_separate_the_routes() -> None:
    answered = [
        Timing("label accuracy", 0.002, 200),
        Timing("label accuracy", 0.004, 503),
        Timing("page by index", 0.01, 200),
    ]
    figures = Load(answered, seconds=1.5).figures()
    assert (figures["requests"], figures["requests_per_s"], figures["failed"]) == (3, 2.0, 1)
    assert figures["routes"]["label accuracy"] == {"n": 2, "p50_ms": 3.0, "p99_ms": 4.0}
    assert figures["page_of_questions"] == {"n": 1, "p50_ms": 10.0, "p99_ms": 10.0}
