import { useState } from "preact/hooks";
import type { ShownToken, TokenAlternative } from "../../api.js";
import { shortNumber } from "../format.js";

/** Meaning of the tokens' colours. */
export type Coloring = "logprob" | "advantage" | "none";

/** From certain to this, in nats; anything less likely has the same colour. */
const LEAST_LOGPROB = -6;

/** The values that these tokens can be coloured by. */
export function coloringsOf(tokens: readonly ShownToken[]): readonly Coloring[] {
  return [
    ...(tokens.some(({ logprob }) => logprob !== undefined) ? (["logprob"] as const) : []),
    ...(tokens.some(({ advantage }) => advantage !== undefined) ? (["advantage"] as const) : []),
    "none",
  ];
}

/** Tokens as a text with colours, or as a table of their numbers. Tokens that are only read are pale, trained ones are underlined. */
export function Tokens({
  tokens,
  coloring,
  isTable,
}: {
  readonly tokens: readonly ShownToken[];
  readonly coloring: Coloring;
  readonly isTable: boolean;
}) {
  if (isTable) return <TokenTable tokens={tokens} />;
  const strongest = tokens.reduce((most, { advantage }) => Math.max(most, Math.abs(advantage ?? 0)), 1e-9);
  return (
    <div class="tokens text mono">
      {tokens.map((token, place) => (
        <span
          key={place}
          class={token.weight === undefined ? "" : token.weight > 0 ? "trained" : "read"}
          style={{ background: colorOf(token, coloring, strongest) }}
          title={inWords(token)}
        >
          {shownText(token)}
        </span>
      ))}
    </div>
  );
}

/** How tokens are shown, for those who choose it. */
export function TokenControls({
  choices,
  coloring,
  onColoring,
  isTable,
  onTable,
}: {
  readonly choices: readonly Coloring[];
  readonly coloring: Coloring;
  readonly onColoring: (coloring: Coloring) => void;
  readonly isTable: boolean;
  readonly onTable: (isTable: boolean) => void;
}) {
  const words = { logprob: "logprob", advantage: "advantage", none: "nothing" } as const;
  return (
    <div class="bar">
      <label>
        Colour tokens by
        <select value={coloring} onChange={(event) => onColoring(event.currentTarget.value as Coloring)}>
          {choices.map((choice) => (
            <option key={choice} value={choice}>
              {words[choice]}
            </option>
          ))}
        </select>
      </label>
      <label>
        <input type="checkbox" checked={isTable} onChange={(event) => onTable(event.currentTarget.checked)} />
        As a table
      </label>
      <Legend coloring={coloring} />
    </div>
  );
}

function Legend({ coloring }: { readonly coloring: Coloring }) {
  if (coloring === "none") return null;
  const isLogprob = coloring === "logprob";
  const values = isLogprob ? [0, -1.5, -3, -4.5, -6] : [-1, -0.5, 0, 0.5, 1];
  return (
    <span class="note legend">
      {isLogprob ? "certain" : "worse"}
      {values.map((value) => (
        <span
          key={value}
          class="patch"
          style={{
            background: colorOf(
              isLogprob ? { id: 0, text: "", logprob: value } : { id: 0, text: "", advantage: value },
              coloring,
              1,
            ),
          }}
        />
      ))}
      {isLogprob ? "unlikely" : "better"}
    </span>
  );
}

function TokenTable({ tokens }: { readonly tokens: readonly ShownToken[] }) {
  const [shown, setShown] = useState(200);
  const has = (name: "logprob" | "advantage" | "weight") => tokens.some((token) => token[name] !== undefined);
  const hasAlternatives = tokens.some(({ alternatives = [] }) => alternatives.length > 0);
  const columns = (["logprob", "advantage", "weight"] as const).filter(has);
  return (
    <div class="table-frame">
      <table class="compact">
        <thead>
          <tr>
            <th class="number">#</th>
            <th>token</th>
            <th class="number">id</th>
            {columns.map((name) => (
              <th key={name} class="number">
                {name}
              </th>
            ))}
            {hasAlternatives && <th>likeliest tokens</th>}
          </tr>
        </thead>
        <tbody>
          {tokens.slice(0, shown).map((token, place) => (
            <tr key={place}>
              <td class="number muted">{place}</td>
              <td class="mono text">{JSON.stringify(token.text)}</td>
              <td class="number">{token.id}</td>
              {columns.map((name) => (
                <td key={name} class="number">
                  {shortNumber(token[name])}
                </td>
              ))}
              {hasAlternatives && (
                <td class="mono text">{(token.alternatives ?? []).map(alternativeText).join("  ")}</td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
      {tokens.length > shown && (
        <button type="button" class="small" onClick={() => setShown(shown + 1000)}>
          Show more of {tokens.length}
        </button>
      )}
    </div>
  );
}

/** A character whose other bytes are in the next token has no text of its own. */
function shownText({ text, id }: ShownToken): string {
  if (text === "") return `⟨${id}⟩`;
  return text.replaceAll("\n", "↵\n");
}

function colorOf({ logprob, advantage, weight }: ShownToken, coloring: Coloring, strongest: number): string {
  // Tokens that are only read would hide those that are trained on.
  if (weight === 0) return "transparent";
  const mixed = (name: string, share: number) =>
    `color-mix(in srgb, var(--${name}) ${Math.round(Math.min(1, share) * 42)}%, transparent)`;
  if (coloring === "logprob" && typeof logprob === "number") return mixed("bad", logprob / LEAST_LOGPROB);
  if (coloring === "advantage" && typeof advantage === "number")
    return mixed(advantage < 0 ? "bad" : "good", Math.abs(advantage) / strongest);
  return "transparent";
}

function alternativeText({ text, logprob }: TokenAlternative): string {
  return `${JSON.stringify(text)} ${(100 * Math.exp(logprob)).toPrecision(3)} %`;
}

function inWords({ id, text, logprob, advantage, weight, alternatives = [] }: ShownToken): string {
  return [
    `${JSON.stringify(text)} (${id})`,
    ...(typeof logprob === "number"
      ? [`logprob ${logprob.toFixed(3)}, probability ${Math.exp(logprob).toPrecision(3)}`]
      : []),
    ...(typeof advantage === "number" ? [`advantage ${shortNumber(advantage)}`] : []),
    ...(alternatives.length > 0 ? [`likeliest: ${alternatives.map(alternativeText).join(", ")}`] : []),
    ...(weight === undefined ? [] : [weight > 0 ? `trained on, weight ${shortNumber(weight)}` : "only read"]),
  ].join("\n");
}
