import { shortNumber, wholeNumberText } from "../format.js";

const MAX_BARS = 24;
const WIDTH = 240;
const HEIGHT = 56;

/** How often each size of a value occurs. */
export function ValueHistogram({
  title,
  values,
}: {
  readonly title: string;
  readonly values: readonly number[];
}) {
  if (values.length === 0) return null;
  const [least, greatest] = [Math.min(...values), Math.max(...values)];
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const count = Math.min(MAX_BARS, new Set(values).size);
  const counts = Array<number>(count).fill(0);
  for (const value of values) {
    const share = greatest === least ? 0 : (value - least) / (greatest - least);
    counts[Math.min(count - 1, Math.floor(share * count))]! += 1;
  }
  const highest = Math.max(...counts);
  const width = WIDTH / count;
  const range =
    least === greatest
      ? `all ${shortNumber(least)}`
      : `${shortNumber(least)} to ${shortNumber(greatest)}, mean ${shortNumber(mean)}`;
  const summary = `${range} (${wholeNumberText(values.length)} ${values.length === 1 ? "sample" : "samples"})`;
  return (
    <figure class="histogram">
      <figcaption class="note">
        {title}: {summary}
      </figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`${title}: ${summary}`}>
        {counts.map((number, bar) => {
          const height = (number / highest) * (HEIGHT - 2);
          return (
            <rect
              key={bar}
              x={bar * width + 1}
              width={Math.max(1, width - 2)}
              y={HEIGHT - height}
              height={height}
            >
              <title>{`${wholeNumberText(number)} at ${barName(bar, count, least, greatest)}`}</title>
            </rect>
          );
        })}
      </svg>
    </figure>
  );
}

function barName(bar: number, count: number, least: number, greatest: number): string {
  if (greatest === least) return shortNumber(least);
  const width = (greatest - least) / count;
  return `${shortNumber(least + bar * width)} to ${shortNumber(least + (bar + 1) * width)}`;
}
