const WIDTH = 640;
const HEIGHT = 200;
const MARGIN = { left: 44, right: 12, top: 12, bottom: 26 };

/** Draws losses as a line into an SVG of 640 x 200. */
export function drawLosses(svg: SVGSVGElement, losses: readonly number[], steps: number): void {
  const first = losses[0];
  const last = losses.at(-1);
  if (first === undefined || last === undefined) {
    svg.replaceChildren();
    svg.setAttribute("aria-label", "No loss yet");
    return;
  }
  const highest = Math.max(...losses);
  const x = (index: number) =>
    MARGIN.left + (index / Math.max(1, steps - 1)) * (WIDTH - MARGIN.left - MARGIN.right);
  const y = (loss: number) =>
    HEIGHT - MARGIN.bottom - (loss / highest) * (HEIGHT - MARGIN.top - MARGIN.bottom);
  const points = losses.map((loss, index) => `${x(index).toFixed(1)},${y(loss).toFixed(1)}`);
  svg.replaceChildren(
    line("grid", MARGIN.left, y(0), WIDTH - MARGIN.right, y(0)),
    line("grid", MARGIN.left, y(highest), WIDTH - MARGIN.right, y(highest)),
    label("end", MARGIN.left - 8, y(0) + 4, "0"),
    label("end", MARGIN.left - 8, y(highest) + 4, highest.toFixed(1)),
    label("start", MARGIN.left, HEIGHT - 6, "step 1"),
    label("end", WIDTH - MARGIN.right, HEIGHT - 6, `step ${steps}`),
    element("polyline", { class: "losses", points: points.join(" ") }),
    element("circle", { class: "newest", cx: `${x(losses.length - 1)}`, cy: `${y(last)}`, r: "4" }),
  );
  const range = `from ${first.toFixed(2)} to ${last.toFixed(2)}`;
  svg.setAttribute("aria-label", `Loss per word over ${losses.length} of ${steps} steps: ${range}`);
}

function element(name: string, attributes: Record<string, string>): SVGElement {
  const created = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
  return created;
}

const line = (kind: string, x1: number, y1: number, x2: number, y2: number) =>
  element("line", { class: kind, x1: `${x1}`, y1: `${y1}`, x2: `${x2}`, y2: `${y2}` });

function label(anchor: "start" | "end", x: number, y: number, text: string): SVGElement {
  const created = element("text", { x: `${x}`, y: `${y}`, "text-anchor": anchor });
  created.textContent = text;
  return created;
}
