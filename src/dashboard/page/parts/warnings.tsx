import type { RunSummary, ShownWarning } from "../../api.js";
import { wholeNumberText } from "../format.js";
import { Swatch } from "./pieces.js";

/** How many warnings a run has, beside its name. */
export function WarningSign({ run }: { readonly run: RunSummary }) {
  const count = run.warnings.length;
  if (count === 0) return null;
  return (
    <span
      class="tag warn"
      title={run.warnings.map(({ step, message }) => `step ${step}: ${message}`).join("\n")}
    >
      {count === 1 ? "1 warning" : `${count} warnings`}
    </span>
  );
}

/** A warning in its words, with the step and what to change. */
export function WarningText({ warning: { step, message, proposal } }: { readonly warning: ShownWarning }) {
  return (
    <>
      <strong>Step {wholeNumberText(step)}:</strong> {message}
      {proposal !== undefined && <span class="muted">. Try {proposal}</span>}
    </>
  );
}

/** Warnings that the training loops of these runs wrote. */
export function WarningList({
  runs,
  names,
}: {
  readonly runs: readonly (RunSummary | undefined)[];
  readonly names: readonly string[];
}) {
  const all = runs.flatMap((run, place) => (run?.warnings ?? []).map((warning) => ({ warning, place })));
  if (all.length === 0) return null;
  return (
    <section class="card padded health" aria-label="Warnings">
      <h2>Warnings</h2>
      <ul>
        {all.map(({ warning, place }, index) => (
          <li key={index} class="text">
            {runs.length > 1 && (
              <>
                <Swatch place={place} /> {names[place]}{" "}
              </>
            )}
            <WarningText warning={warning} />
          </li>
        ))}
      </ul>
    </section>
  );
}
