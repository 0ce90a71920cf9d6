import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { Sample, ShownTurn } from "../../api.js";
import { shortNumber, wholeNumberText } from "../format.js";
import { ConversationView } from "../parts/conversation.js";
import { Loaded } from "../parts/pieces.js";
import { type Coloring, coloringsOf, TokenControls, Tokens } from "../parts/tokens.js";
import { askJson } from "../server.js";
import { useAsked } from "../store.js";
import { RewardNumber } from "./reward.js";

/** One sample: its conversation, its turns and their tokens. */
export function WholeSample({
  path,
  isExample,
  children,
}: {
  readonly path: string;
  /** True for a sample of a supervised batch, which has no episode. */
  readonly isExample: boolean;
  /** Buttons that lead to other samples. */
  readonly children: ComponentChildren;
}) {
  const asked = useAsked((signal) => askJson<Sample>(path, { signal }), [path]);
  return (
    <article class="sample-details">
      {children}
      <Loaded asked={asked}>{(sample) => <SampleContent {...{ sample, isExample }} />}</Loaded>
    </article>
  );
}

function SampleContent({ sample, isExample }: { readonly sample: Sample; readonly isExample: boolean }) {
  const tokens = sample.turns.flatMap((turn) => turn.tokens ?? []);
  const choices = coloringsOf(tokens);
  const [coloring, setColoring] = useState<Coloring>(
    choices.includes("advantage") ? "advantage" : choices[0]!,
  );
  const [isTable, setIsTable] = useState(false);
  return (
    <>
      <header class="bar">
        <h2>{isExample ? `Example ${sample.index}` : `Group ${sample.group}, episode ${sample.index}`}</h2>
        {sample.reward !== undefined && (
          <span>
            reward <RewardNumber value={sample.reward} />
          </span>
        )}
        {sample.stopReason !== undefined && <span class="tag">{sample.stopReason}</span>}
        <Numbers values={sample.metrics} />
      </header>
      {sample.messages !== undefined && (
        <section class="card padded" aria-label="Conversation">
          <ConversationView messages={sample.messages} />
        </section>
      )}
      {tokens.length > 0 && (
        <TokenControls {...{ choices, coloring, isTable }} onColoring={setColoring} onTable={setIsTable} />
      )}
      {sample.tokenProblem !== undefined && <p class="note warn">{sample.tokenProblem}</p>}
      {sample.turns.map((turn, place) => (
        <Turn
          key={place}
          turn={turn}
          title={isExample ? "What the model reads, and what it is trained on" : `Turn ${place + 1}`}
          {...{ coloring, isTable }}
        />
      ))}
    </>
  );
}

function Turn({
  turn,
  title,
  coloring,
  isTable,
}: {
  readonly turn: ShownTurn;
  readonly title: string;
  readonly coloring: Coloring;
  readonly isTable: boolean;
}) {
  const { observation, tokens } = turn;
  return (
    <section class="card padded turn">
      <div class="bar">
        <h3>{title}</h3>
        {turn.reward !== null && (
          <span class="note">
            reward <RewardNumber value={turn.reward} />
          </span>
        )}
        {turn.observationLength !== undefined && (
          <span class="note">
            {wholeNumberText(turn.observationLength)} prompt tokens, {wholeNumberText(turn.actionLength ?? 0)}{" "}
            sampled
          </span>
        )}
        <Numbers values={turn.metrics} />
      </div>
      {observation !== undefined && (
        <details class="plain">
          <summary>What the model read</summary>
          <Tokens tokens={observation} coloring="none" isTable={isTable} />
        </details>
      )}
      {tokens !== undefined && <Tokens {...{ tokens, coloring, isTable }} />}
      {tokens === undefined && turn.actionLength !== undefined && (
        <p class="note">The tokens of this turn were not kept.</p>
      )}
      {Object.entries(turn.logs).map(([name, text]) => (
        <div key={name}>
          <span class="note">{name}</span>
          <pre class="mono text">{text}</pre>
        </div>
      ))}
    </section>
  );
}

function Numbers({ values }: { readonly values: Readonly<Record<string, number | null>> }) {
  return (
    <>
      {Object.entries(values).map(([name, value]) => (
        <span class="note" key={name}>
          {name} <span class="number">{shortNumber(value)}</span>
        </span>
      ))}
    </>
  );
}
