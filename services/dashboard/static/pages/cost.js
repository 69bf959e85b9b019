// What a run has cost: its stages' time, devices, requests, tokens and money.
import { html } from "/static/preact.js";
import { useResponse } from "../api.js";
import { duration, humanise, number } from "../format.js";
import { Panel, Table } from "../parts.js";

/** @typedef {Schemas["Amounts"]} Amounts @typedef {Schemas["RunCosts"]} RunCosts */

const HEAD = ["stage", "for", "time", "CPU time", "GPU time", "requests", "tokens in", "tokens out"];

/** Shows nothing before the first stage has begun. @param {{ run: string, pollMs: number }} props */
export function Cost({ run, pollMs }) {
  const { data: costs } = useResponse("/runs/{run}/costs", { run }, pollMs);
  if (!costs || costs.rows.length === 0) return null;
  const head = [...HEAD, ...(costs.currency ? [costs.currency] : [])];
  const rows = byStage(costs)
    .map(([stage, purpose, amounts]) => [
      humanise(stage),
      purpose === "stage" ? "" : humanise(purpose),
      ...cellsOf(amounts, costs.currency),
    ])
    .filter((cells) => cells.slice(2).some(Boolean)); // inference on a laptop reserves no CPUs
  const total = ["all", "", ...cellsOf(costs.total, costs.currency)];
  return html`<${Panel} title="Cost" wide id="cost"
    about="What the stages have used over all iterations. Devices of inference are those that its applications hold while a stage uses them; devices of training are those that the worker pool gave to it.">
    <${Table} label="Cost by stage" class="numbers" head=${head}>
      <tbody>
        ${rows.map((cells) => html`<tr key=${`${cells[0]} ${cells[1]}`}>${cells.map((cell) => html`<td>${cell}</td>`)}</tr>`)}
        <tr class="total">${total.map((cell) => html`<td>${cell}</td>`)}</tr>
      </tbody>
    </${Table}>
    <${PerQuestion} costs=${costs} />
  </${Panel}>`;
}

/**
 * The amounts summed over the iterations, in the order of the stages' first appearance.
 *
 * @param {RunCosts} costs
 * @returns {[string, string, Amounts][]}
 */
function byStage({ rows }) {
  /** @type {Map<string, [string, string, Amounts]>} */
  const sums = new Map();
  for (const { stage, purpose, amounts } of rows) {
    const key = `${stage} ${purpose}`;
    const known = sums.get(key);
    if (known) known[2] = added(known[2], amounts);
    else sums.set(key, [stage, purpose, amounts]);
  }
  return [...sums.values()];
}

/** @param {Amounts} a @param {Amounts} b @returns {Amounts} */
const added = (a, b) => ({
  seconds: a.seconds + b.seconds,
  cpu_seconds: a.cpu_seconds + b.cpu_seconds,
  gpu_seconds: a.gpu_seconds + b.gpu_seconds,
  requests: a.requests + b.requests,
  prompt_tokens: a.prompt_tokens + b.prompt_tokens,
  reply_tokens: a.reply_tokens + b.reply_tokens,
  judge_requests: a.judge_requests + b.judge_requests,
  money: a.money + b.money,
});

/** @param {Amounts} amounts @param {string | null} currency */
function cellsOf(amounts, currency) {
  const times = [amounts.seconds, amounts.cpu_seconds, amounts.gpu_seconds];
  const counts = [amounts.requests, amounts.prompt_tokens, amounts.reply_tokens];
  const money = currency ? [amounts.money ? amounts.money.toFixed(2) : ""] : [];
  return [
    ...times.map((seconds) => (seconds ? duration(seconds) : "")),
    ...counts.map((n) => (n ? number(n) : "")),
    ...money,
  ];
}

/** @param {{ costs: RunCosts }} props */
function PerQuestion({ costs }) {
  if (costs.kept === 0) return null;
  const { making, kept, currency, correct } = costs;
  const price = currency ? `, ${(making.money / kept).toFixed(4)} ${currency}` : "";
  const seconds = ((making.cpu_seconds + making.gpu_seconds) / kept).toFixed(2);
  const tokens = number(Math.round((making.prompt_tokens + making.reply_tokens) / kept));
  return html`<p>Each of ${number(kept)} kept questions took ${seconds} s of devices and ${tokens} tokens${price}, from the
    Challenger's training to its label.</p>
    ${correct.map(
      ({
        oracle,
        questions,
        seconds,
        money,
      }) => html`<p key=${oracle}>Each of ${bounds(questions, 0)} with a right label
        (by ${humanise(oracle)}) took ${bounds(seconds, 2)} s of devices${currency ? `, ${bounds(money, 4)} ${currency}` : ""}.</p>`,
    )}`;
}

/** @param {Schemas["Estimate"]} figure @param {number} digits */
const bounds = ({ value, lo, hi }, digits) =>
  `${value.toFixed(digits)} (95%: ${lo.toFixed(digits)} to ${hi.toFixed(digits)})`;
