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
  const ofStage = data.of_stage && `${humanise(data.stage)} ${data.iteration}: ${timeLeft(data.of_stage)} left`;
  const ofRun = data.of_run && `whole run: ${timeLeft(data.of_run)} left, unless it is stopped early`;
  return html`<p class="meta remaining">
    ${[ofStage, ofRun].filter(Boolean).join(" · ")}
    <small>, judging by the run's own iterations so far</small>
  </p>`;
}

/** The mean and, if they differ, the range. @param {{ mean: number, low: number, high: number }} left */
function timeLeft({ mean, low, high }) {
  const [about, range] = [durationRange({ low: mean, high: mean }), durationRange({ low, high })];
  return about === range ? `about ${about}` : `about ${about} (${range})`;
}
