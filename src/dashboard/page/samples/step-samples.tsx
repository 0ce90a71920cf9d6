import { useEffect, useRef } from "preact/hooks";
import type { SampleList, SampleSummary } from "../../api.js";
import { shortNumber, wholeNumberText } from "../format.js";
import { Loaded } from "../parts/pieces.js";
import { askJson } from "../server.js";
import { useAsked } from "../store.js";
import { ValueHistogram } from "./histogram.js";
import { type ListLook, listed, NO_REASON, SORTS } from "./list-look.js";
import { RewardNumber } from "./reward.js";
import { WholeSample } from "./sample-details.js";

/** The samples of a step: which ones, in a list with their first words, and one of them whole. */
export function StepSamples({
  run,
  step,
  split,
  look,
  chosen,
  onLook,
  onChoose,
  onPrompt,
}: {
  readonly run: string;
  readonly step: number;
  readonly split: string;
  readonly look: ListLook;
  readonly chosen: string | null;
  readonly onLook: (look: ListLook) => void;
  readonly onChoose: (place: number) => void;
  readonly onPrompt: (key: string) => void;
}) {
  const path = `step=${step}&split=${encodeURIComponent(split)}`;
  const search = look.search === "" ? "" : `&search=${encodeURIComponent(look.search)}`;
  const asked = useAsked(
    (signal) => askJson<SampleList>(`runs/${run}/samples?${path}${search}`, { signal }),
    [run, path, search],
  );
  const groups = listed(asked.answer?.samples ?? [], look);
  const order = groups.flatMap(({ members }) => members);
  const shown = order.find(({ place }) => String(place) === chosen) ?? order[0];
  const go = (distance: number) => {
    const next = shown && order[order.indexOf(shown) + distance];
    if (next !== undefined) onChoose(next.place);
  };
  useKeys(go);
  const at = shown === undefined ? -1 : order.indexOf(shown);
  return (
    <Loaded asked={asked}>
      {({ samples, total, isCut, badLines }) => (
        <>
          <ListControls {...{ samples, look, onLook }} />
          <div class="histograms">
            <ValueHistogram
              title="Rewards"
              values={samples.flatMap(({ reward }) => (typeof reward === "number" ? reward : []))}
            />
            <ValueHistogram title="Tokens" values={samples.map(({ tokenCount }) => tokenCount)} />
          </div>
          <div class="split">
            <nav class="card sample-list" aria-label="Samples">
              <p class="note" role="status">
                {order.length === total
                  ? `${wholeNumberText(total)} ${total === 1 ? "sample" : "samples"}`
                  : `${wholeNumberText(order.length)} of ${wholeNumberText(total)} samples`}
                {isCut && ", and more that are not listed"}
              </p>
              {groups.map(({ title, members, mean, tags }) => (
                <section key={title}>
                  {title !== "" && (
                    <h2>
                      {title}
                      {mean !== undefined && <span class="muted"> mean {shortNumber(mean)}</span>}
                      {tags.map((tag) => (
                        <span class="tag" key={tag}>
                          {tag}
                        </span>
                      ))}
                    </h2>
                  )}
                  <ul>
                    {members.map((sample) => (
                      <li key={sample.place}>
                        <ListedSample
                          sample={sample}
                          isShown={sample === shown}
                          onChoose={() => onChoose(sample.place)}
                        />
                      </li>
                    ))}
                  </ul>
                </section>
              ))}
              {badLines > 0 && (
                <p class="note warn">
                  {wholeNumberText(badLines)} {badLines === 1 ? "line" : "lines"} could not be read.
                </p>
              )}
              {total > 0 && order.length === 0 && <p class="note">No sample matches.</p>}
              {total === 0 && <p class="note">Nothing was kept of this step.</p>}
            </nav>
            {shown !== undefined && (
              <WholeSample
                key={`${path} ${shown.place}`}
                path={`runs/${run}/samples/${shown.place}?${path}`}
                isExample={split === "examples"}
              >
                <span class="bar">
                  <button type="button" disabled={at <= 0} title="Key: k" onClick={() => go(-1)}>
                    Previous
                  </button>
                  <button
                    type="button"
                    disabled={at === order.length - 1}
                    title="Key: j"
                    onClick={() => go(1)}
                  >
                    Next
                  </button>
                  <span class="note">
                    {wholeNumberText(at + 1)} of {wholeNumberText(order.length)}, keys j and k
                  </span>
                  <button type="button" class="end" onClick={() => onPrompt(shown.promptKey)}>
                    This prompt in all steps
                  </button>
                </span>
              </WholeSample>
            )}
          </div>
        </>
      )}
    </Loaded>
  );
}

/** Next and previous with j and k, unless something is typed into. */
function useKeys(go: (distance: number) => void): void {
  const latest = useRef(go);
  latest.current = go;
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      const distance = { j: 1, k: -1 }[event.key];
      const isTyped = event.target instanceof Element && event.target.matches("input, textarea, select");
      if (distance === undefined || isTyped || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      latest.current(distance);
    };
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, []);
}

function ListControls({
  samples,
  look,
  onLook,
}: {
  readonly samples: readonly SampleSummary[];
  readonly look: ListLook;
  readonly onLook: (look: ListLook) => void;
}) {
  const reasons = [...new Set(samples.map(({ stopReason = NO_REASON }) => stopReason))].sort();
  const hasRewards = samples.some(({ reward }) => typeof reward === "number");
  const numberOf = (text: string) => (text === "" ? undefined : Number(text));
  return (
    <fieldset class="bar">
      <legend class="visually-hidden">Which samples are listed</legend>
      <label>
        Search
        <input
          type="search"
          placeholder="prompt or answer"
          value={look.search}
          onChange={(event) => onLook({ ...look, search: event.currentTarget.value })}
        />
      </label>
      <label>
        Sort
        <select
          value={look.sort}
          onChange={(event) => onLook({ ...look, sort: event.currentTarget.value as ListLook["sort"] })}
        >
          {Object.entries(SORTS).map(([name, title]) => (
            <option key={name} value={name}>
              {title}
            </option>
          ))}
        </select>
      </label>
      {(reasons.length > 1 || look.stop !== "") && (
        <label>
          Stop reason
          <select
            value={look.stop}
            onChange={(event) => onLook({ ...look, stop: event.currentTarget.value })}
          >
            <option value="">any</option>
            {[...new Set([...reasons, ...(look.stop === "" ? [] : [look.stop])])].map((reason) => (
              <option key={reason}>{reason}</option>
            ))}
          </select>
        </label>
      )}
      {(hasRewards || look.minReward !== undefined || look.maxReward !== undefined) && (
        <>
          <label>
            Reward from
            <input
              type="number"
              step="any"
              class="place"
              value={look.minReward ?? ""}
              onChange={(event) => onLook({ ...look, minReward: numberOf(event.currentTarget.value) })}
            />
          </label>
          <label>
            to
            <input
              type="number"
              step="any"
              class="place"
              value={look.maxReward ?? ""}
              onChange={(event) => onLook({ ...look, maxReward: numberOf(event.currentTarget.value) })}
            />
          </label>
        </>
      )}
    </fieldset>
  );
}

function ListedSample({
  sample,
  isShown,
  onChoose,
}: {
  readonly sample: SampleSummary;
  readonly isShown: boolean;
  readonly onChoose: () => void;
}) {
  const place = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (isShown) place.current?.scrollIntoView({ block: "nearest" });
  }, [isShown]);
  return (
    <button
      type="button"
      class="quiet sample"
      ref={place}
      aria-current={isShown ? "true" : undefined}
      onClick={onChoose}
    >
      <span class="sample-line">
        <RewardNumber value={sample.reward} />
        <span class="words">{sample.answer || <span class="muted">#{sample.index}</span>}</span>
      </span>
      {sample.prompt !== "" && <span class="words note">{sample.prompt}</span>}
      <span class="note">
        #{sample.index} {sample.turnCount > 1 && `${sample.turnCount} turns, `}
        {wholeNumberText(sample.tokenCount)} {sample.tokenCount === 1 ? "token" : "tokens"}
        {sample.stopReason !== undefined && `, ${sample.stopReason}`}
      </span>
    </button>
  );
}
