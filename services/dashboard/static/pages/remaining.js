// How long a run and its current stage will probably still take.
import { html } from "/static/preact.js";
import { useResponse } from "../api.js";
import { durationRange, humanise } from "../format.js";

/** Says why if nothing is known. @param {{ run: string, pollMs: number }} props */
export function RemainingTime({ run, pollMs }) {
  const { data } = useResponse("/runs/{run}/remaining", { run }, pollMs);
  if (!data?.stage) return null;
  if (!data.of_stage && !data.of_run)
    return data.unknown && html`<p class="meta remaining">Remaining time: not known yet, since ${data.unknown}.</p>`;
  const ofStage =
    data.of_stage && `${humanise(data.stage)} ${data.iteration}: about ${durationRange(data.of_stage)} left`;
  const ofRun = data.of_run && `whole run: about ${durationRange(data.of_run)} left, unless it is stopped early`;
  const basis = data.similar.length > 0 ? `the times of ${data.similar.join(", ")} and of` : "the times of";
  return html`<p class="meta remaining">
    ${[ofStage, ofRun].filter(Boolean).join(" · ")}
    <small>, judging by ${basis} this run's own stages</small>
  </p>`;
}
