// What the API says of a run's course, sorted into lines to draw.

/** The series of one name: a course for each oracle and each set of questions, its points in order. */
export function courses(series, name) {
  const found = new Map();
  for (const point of series) {
    if (point.name !== name) continue;
    const key = `${point.oracle}/${point.over}`;
    if (!found.has(key)) found.set(key, { name, oracle: point.oracle, over: point.over, points: [] });
    found.get(key).points.push(point);
  }
  for (const course of found.values()) course.points.sort((a, b) => a.iteration - b.iteration);
  return [...found.values()];
}

/** pass@1 of each Solver on the benchmark, and what the benchmark is to the run; its points are [] where there is none. */
export function accuracyOf(series) {
  const [testTime] = courses(series, "test_time");
  if (testTime) return { ...testTime, title: "Test-time accuracy", about: "pass@1 of each Solver on the very questions that it trains on, their answers hidden." };
  const [heldOut] = courses(series, "held_out");
  if (heldOut) return { ...heldOut, title: "Held-out accuracy", about: "pass@1 of each Solver on questions that nobody trained on." };
  return { points: [], title: "Benchmark accuracy", about: "pass@1 of each Solver on the benchmark." };
}

/** A course's last figure that was measured, or, where none was, the last estimate. */
export const latest = (course) => course?.points.findLast((point) => !point.estimated) ?? course?.points.at(-1);

/** The numbers of lines as rows of a table; ~ is an estimate. */
export const rowsOf = (lines, write) =>
  lines.flatMap((line) =>
    line.points.map((point) => [line.name, point.iteration, `${point.estimated ? "~" : ""}${write(point.value)}`, point.lo === null ? "–" : `${write(point.lo)} – ${write(point.hi)}`, point.n]),
  );
export const HEAD = ["what", "iteration", "value", "95% interval", "n"];
