import type { PromptAnswer, PromptHistory, RunSummary } from "../../api.js";
import { distinctNames, shortNumber, wholeNumberText } from "../format.js";
import { Empty, Loaded } from "../parts/pieces.js";
import { askJson } from "../server.js";
import { useAsked } from "../store.js";
import { RewardNumber } from "./reward.js";

/** Runs that fit side by side. */
const MAX_RUNS = 4;

/** The answers to one prompt: a row for each step, a column for each run. */
export function PromptHistoryView({
  runs,
  chosen,
  split,
  promptKey,
  onRuns,
  onSample,
  onClose,
}: {
  readonly runs: readonly RunSummary[];
  /** Runs that have a column, as far as they are there. */
  readonly chosen: readonly string[];
  readonly split: string;
  readonly promptKey: string;
  readonly onRuns: (runs: readonly string[]) => void;
  readonly onSample: (run: string, place: { readonly step: number; readonly sample: string }) => void;
  readonly onClose: () => void;
}) {
  const shown = chosen.flatMap((id) => runs.find((run) => run.id === id) ?? []).slice(0, MAX_RUNS);
  const ids = shown.map(({ id }) => id);
  const asked = useAsked(
    (signal) =>
      Promise.all(
        ids.map((id) =>
          askJson<PromptHistory>(`runs/${id}/prompts/${promptKey}?split=${encodeURIComponent(split)}`, {
            signal,
          }),
        ),
      ),
    [ids.join(), promptKey, split],
  );
  const names = distinctNames(shown.map(({ name }) => name));
  const others = runs.filter(({ id, hasSamples }) => hasSamples && !ids.includes(id));
  return (
    <section class="form" aria-label="One prompt in all steps">
      <div class="bar">
        <button type="button" onClick={onClose}>
          Back to the step
        </button>
        {others.length > 0 && ids.length < MAX_RUNS && (
          <label>
            Compare with
            <select class="short" value="" onChange={(event) => onRuns([...ids, event.currentTarget.value])}>
              <option value="" disabled>
                choose a run
              </option>
              {others.map(({ id, name }) => (
                <option key={id} value={id}>
                  {name}
                </option>
              ))}
            </select>
          </label>
        )}
      </div>
      <Loaded asked={asked}>
        {(histories) => {
          const steps = [...new Set(histories.flatMap((one) => one.steps.map(({ step }) => step)))].sort(
            (one, other) => one - other,
          );
          const prompt = histories.find((one) => one.prompt !== "")?.prompt;
          if (steps.length === 0) return <Empty title="This prompt is in no step" />;
          return (
            <>
              {prompt !== undefined && <div class="card padded text">{prompt}</div>}
              {histories.some(({ isCut }) => isCut) && (
                <p class="note">Some steps are left out, evenly over the run.</p>
              )}
              <div class="card table-frame">
                <table class="answers">
                  <caption class="visually-hidden">Answers by step and run</caption>
                  <thead>
                    <tr>
                      <th>Step</th>
                      {shown.map(({ id }, place) => (
                        <th key={id}>
                          {names[place]}{" "}
                          {ids.length > 1 && (
                            <button
                              type="button"
                              class="quiet small"
                              aria-label={`Remove ${names[place]}`}
                              onClick={() => onRuns(ids.filter((other) => other !== id))}
                            >
                              Remove
                            </button>
                          )}
                        </th>
                      ))}
                    </tr>
                  </thead>
                  <tbody>
                    {steps.map((step) => (
                      <tr key={step}>
                        <th scope="row">{wholeNumberText(step)}</th>
                        {ids.map((id, place) => {
                          const found = histories[place]?.steps.find((one) => one.step === step);
                          return (
                            <td key={id}>
                              {found && (
                                <Answers
                                  samples={found.samples}
                                  onOpen={(sample) => onSample(id, { step, sample })}
                                />
                              )}
                            </td>
                          );
                        })}
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            </>
          );
        }}
      </Loaded>
    </section>
  );
}

/** The best answer of a step, and the others below it. */
function Answers({
  samples,
  onOpen,
}: {
  readonly samples: readonly PromptAnswer[];
  readonly onOpen: (place: string) => void;
}) {
  const [best, ...rest] = samples.toSorted((one, other) => (other.reward ?? 0) - (one.reward ?? 0));
  const rewards = samples.flatMap(({ reward }) => (typeof reward === "number" ? reward : []));
  return (
    <>
      {best && <Answer sample={best} onOpen={onOpen} />}
      {rest.length > 0 && (
        <details>
          <summary class="note">
            {wholeNumberText(rest.length)} more
            {rewards.length > 0 &&
              `, mean reward ${shortNumber(rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length)}`}
          </summary>
          {rest.map((sample) => (
            <Answer key={sample.place} {...{ sample, onOpen }} />
          ))}
        </details>
      )}
    </>
  );
}

function Answer({
  sample: { place, reward, answer, index },
  onOpen,
}: {
  readonly sample: PromptAnswer;
  readonly onOpen: (place: string) => void;
}) {
  return (
    <div class="answer">
      <button type="button" class="quiet small" onClick={() => onOpen(String(place))}>
        #{index}
      </button>{" "}
      <RewardNumber value={reward} /> <span class="text">{answer}</span>
    </div>
  );
}
