const WIDTH = 96;
const HEIGHT = 26;

/** A metric from the beginning of a run to its end, without axes. */
export function SmallCurve({ values }: { readonly values: readonly number[] }) {
  if (values.length < 2) return null;
  const least = Math.min(...values);
  const height = Math.max(...values) - least || 1;
  const points = values.map((value, at) => {
    const x = 1 + (at / (values.length - 1)) * (WIDTH - 2);
    const y = HEIGHT - 2 - ((value - least) / height) * (HEIGHT - 4);
    return `${x.toFixed(1)},${y.toFixed(1)}`;
  });
  return (
    <svg class="small-curve" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} aria-hidden="true">
      <polyline points={points.join(" ")} />
    </svg>
  );
}
