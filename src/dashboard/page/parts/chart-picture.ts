import uPlot from "uplot";
import { linesOf } from "../curve-data.js";
import { saveAs } from "../save.js";
import { colorOf } from "../theme.js";
import { type DrawnChart, drawingOf } from "./chart-options.js";

const SCALE = 2;
const MARGIN = 16 * SCALE;
const LINE = 22 * SCALE;

/** Saves a panel as a picture of twice its size, with its title and the names of its runs. */
export async function savePicture(
  chart: DrawnChart,
  names: readonly string[],
  { clientWidth: width, clientHeight: height }: Element,
): Promise<void> {
  const { curve, settings } = chart;
  const place = document.createElement("div");
  place.className = "unseen";
  document.body.append(place);
  const plot = new uPlot(
    drawingOf({ current: chart }, { width, height }, SCALE),
    linesOf(curve, settings),
    place,
  );
  try {
    // It is drawn when this task has ended.
    await new Promise(requestAnimationFrame);
    const drawn = plot.ctx.canvas;
    const runs = names.flatMap((name, run) => (curve.series[run] === undefined ? [] : [{ name, run }]));
    const canvas = document.createElement("canvas");
    canvas.width = drawn.width + 2 * MARGIN;
    canvas.height = drawn.height + 2 * MARGIN + LINE * (1 + runs.length);
    const context = canvas.getContext("2d")!;
    context.fillStyle = colorOf("surface");
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.textBaseline = "middle";
    context.fillStyle = colorOf("text");
    context.font = `600 ${14 * SCALE}px system-ui`;
    context.fillText(curve.metric, MARGIN, MARGIN + LINE / 2, drawn.width);
    context.drawImage(drawn, MARGIN, MARGIN + LINE);
    context.font = `${12 * SCALE}px system-ui`;
    for (const [line, { name, run }] of runs.entries()) {
      const y = MARGIN + LINE * (line + 1.5) + drawn.height;
      context.fillStyle = colorOf(`run-${run}`);
      context.fillRect(MARGIN, y - 5 * SCALE, 10 * SCALE, 10 * SCALE);
      context.fillStyle = colorOf("text");
      context.fillText(name, MARGIN + 16 * SCALE, y, drawn.width - 16 * SCALE);
    }
    const blob = await new Promise<Blob | null>((resolve) => canvas.toBlob(resolve));
    if (blob !== null) saveAs(blob, `${curve.metric}.png`);
  } finally {
    plot.destroy();
    place.remove();
  }
}
