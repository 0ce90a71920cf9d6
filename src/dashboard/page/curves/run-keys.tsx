import type { RunCurves, RunSummary } from "../../api.js";
import { stepsText, wholeNumberText } from "../format.js";
import { Swatch } from "../parts/pieces.js";
import { WarningSign } from "../parts/warnings.js";
import { linkTo } from "../route.js";
import { dollars } from "../runs/run-fields.js";

/** The chosen runs with their colours and states. */
export function RunKeys({
  ids,
  runs,
  names,
  metrics,
}: {
  readonly ids: readonly string[];
  readonly runs: readonly (RunSummary | undefined)[];
  readonly names: readonly string[];
  readonly metrics: readonly (RunCurves | undefined)[];
}) {
  return (
    <ul class="run-keys" aria-label="Runs">
      {ids.map((id, place) => {
        const run = runs[place];
        const { badLines: bad = 0, leftOut = 0 } = metrics[place] ?? {};
        return (
          <li key={id}>
            <Swatch place={place} />
            <strong title={run?.folder}>{names[place]}</strong>
            {run && <span class={`state ${run.state}`}>{run.state}</span>}
            {run?.model && <span class="muted">{run.model}</span>}
            {run?.steps !== undefined && <span class="muted">{stepsText(run)}</span>}
            {run?.costUsd ? <span class="muted">{dollars(run.costUsd)}</span> : null}
            {run && <WarningSign run={run} />}
            {leftOut > 0 && <span class="tag">more metrics than are kept</span>}
            {bad > 0 && (
              <span class="tag">
                {wholeNumberText(bad)} unreadable {bad === 1 ? "line" : "lines"}
              </span>
            )}
            {ids.length > 1 && (
              <a
                href={linkTo("curves", { run: ids.filter((other) => other !== id) })}
                aria-label={`Remove ${names[place]}`}
              >
                Remove
              </a>
            )}
          </li>
        );
      })}
    </ul>
  );
}
