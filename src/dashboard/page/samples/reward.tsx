import { shortNumber } from "../format.js";

/** A reward in the colour of its sign; nothing for a sample without one. */
export function RewardNumber({ value }: { readonly value: number | null | undefined }) {
  if (value === undefined) return null;
  return (
    <strong class={`reward ${value === null ? "" : value > 0 ? "good" : value < 0 ? "bad" : ""}`}>
      {shortNumber(value)}
    </strong>
  );
}
