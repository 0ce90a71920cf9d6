import { describe, expect, it } from "vitest";
import type { CommandContext } from "../context.js";
import { type Column, humanBytes, relativeTime } from "./columns.js";
import { renderCsv } from "./csv.js";
import { progressBar } from "./progress.js";
import { renderItem, renderTable } from "./table.js";
import { cutText, displayWidth, printable } from "./text.js";
import { whileWaiting } from "./waiting.js";

interface Thing {
  readonly name: string;
  readonly size?: number;
  readonly note?: string;
  readonly parts?: readonly string[];
}

const columns: readonly Column<Thing>[] = [
  { header: "Name", name: "name", value: ({ name }) => name, importance: 9, leastWidth: 6 },
  { header: "Size", name: "sizeBytes", value: ({ size }) => size, kind: "bytes", importance: 5 },
  { header: "Note", name: "note", value: ({ note }) => note, importance: 3, leastWidth: 5, isOptional: true },
  { header: "Parts", name: "parts", value: ({ parts }) => parts, importance: 1, none: "none" },
];
const plain = (text: string) => text;
const styles = { bold: plain, dim: plain, red: plain, green: plain, yellow: plain, cyan: plain };
const table = (items: readonly Thing[], width = Number.POSITIVE_INFINITY) =>
  renderTable(items, columns, { width, nowMs: 0, styles }).lines;

const things: readonly Thing[] = [
  { name: "a long name", size: 1_234_567, note: "some words", parts: ["x", "y"] },
  { name: "b" },
];

describe("a table", () => {
  it("shows all of everything where there is room", () => {
    expect(table(things)).toEqual([
      "NAME           SIZE  NOTE        PARTS",
      "a long name  1.2 MB  some words  x, y",
      "b                 -  -           none",
    ]);
    expect(table(things, 38)).toEqual(table(things));
  });

  it("leaves out optional columns that nothing has a value for", () => {
    expect(table([{ name: "b", size: 1 }])[0]).toBe("NAME  SIZE  PARTS");
  });

  it.each([
    [37, ["NAME           SIZE  NOTE", "a long name  1.2 MB  some words"]],
    [30, ["NAME           SIZE  NOTE", "a long name  1.2 MB  some wor…"]],
    [26, ["NAME           SIZE  NOTE", "a long name  1.2 MB  some…"]],
    [25, ["NAME           SIZE", "a long name  1.2 MB"]],
    [18, ["NAME", "a long name"]],
    [9, ["NAME", "a long n…"]],
    [4, ["NAME", "a l…"]],
  ])("cuts, then leaves out, the least important columns in a terminal of %i columns", (width, expected) => {
    const lines = table([things[0]!], width);
    expect(lines).toEqual(expected);
    for (const line of lines) expect(displayWidth(line)).toBeLessThanOrEqual(width);
  });

  it("says which columns it left out", () => {
    const leftOut = (width: number) => renderTable(things, columns, { width, nowMs: 0, styles }).leftOut;
    expect([38, 37, 25].map(leftOut)).toEqual([[], ["Parts"], ["Note", "Parts"]]);
  });

  it("gives a column that people copy from a line of its own where all do not fit in one", () => {
    const [name, ...others] = columns;
    const copied = [{ ...name!, takesOwnLine: true as const }, ...others];
    const lines = (width: number) => renderTable(things, copied, { width, nowMs: 0, styles }).lines;
    expect(lines(38)).toEqual(table(things));
    expect(lines(37)).toEqual([
      ...["NAME", "    SIZE  NOTE        PARTS"],
      ...["a long name", "  1.2 MB  some words  x, y"],
      ...["b", "       -  -           none"],
    ]);
    expect(lines(9)).toEqual(["NAME", "    SIZE", "a long name", "  1.2 MB", "b", "       -"]);
    expect(renderTable(things, copied.slice(0, 1), { width: 9, nowMs: 0, styles }).lines[1]).toBe(
      "a long n…",
    );
  });

  it("of one thing has a line for each property and for each of several values", () => {
    expect(renderItem(things[0]!, columns, { width: 80, nowMs: 0, styles })).toEqual([
      "Name   a long name",
      "Size   1.2 MB",
      "Note   some words",
      "Parts  x",
      "       y",
    ]);
  });

  it("lets no name from a server command the terminal or break a line", () => {
    expect(table([{ name: "a\x1b[2Jb\nc" }])[1]).toMatch(/^a�\[2Jb c/);
    expect(printable("\x9b\x07\t")).toBe("�� ");
  });

  it("counts columns, not characters", () => {
    expect(["模型", "e\u0301", "🎉"].map(displayWidth)).toEqual([4, 1, 2]);
    expect(cutText("模型模型", 6)).toBe("模型…");
    expect(cutText("tinker://run/weights/a", 11, "middle")).toBe("tinke…hts/a");
  });
});

describe("CSV", () => {
  it("has plain values, and quotes what needs it", () => {
    expect(renderCsv([{ name: "\u001b[2J\u009b1m \u202ex" }], columns.slice(0, 1))).toBe(
      "name\n\ufffd[2J\ufffd1m \ufffdx\n",
    );
    const text = renderCsv([{ name: 'say "hi", twice\nor so', size: 1_234_567, parts: ["x", "y"] }], columns);
    expect(text).toBe('name,sizeBytes,note,parts\n"say ""hi"", twice\nor so",1234567,,x;y\n');
  });
});

describe("values", () => {
  it.each([
    [0, "0 B"],
    [999, "999 B"],
    [1000, "1.0 kB"],
    [9949, "9.9 kB"],
    [9950, "10 kB"],
    [999_499, "999 kB"],
    [999_500, "1.0 MB"],
    [4.2e12, "4.2 TB"],
  ])("%i bytes are %s", (bytes, text) => expect(humanBytes(bytes)).toBe(text));

  it.each([
    [-2, "just now"],
    [2, "just now"],
    [-59, "59 seconds ago"],
    [-60, "1 minute ago"],
    [-7199, "1 hour ago"],
    [-86_400 * 29, "29 days ago"],
    [-86_400 * 31, "1 month ago"],
    [-86_400 * 800, "2 years ago"],
    [86_400 * 3, "in 3 days"],
  ])("%i seconds from now is %s", (seconds, text) => {
    const now = Date.UTC(2026, 0, 1);
    expect(relativeTime(new Date(now + 1000 * seconds).toISOString(), now)).toBe(text);
  });

  it("leaves other text than a time unchanged", () => expect(relativeTime("soon", 0)).toBe("soon"));
});

describe("a progress bar", () => {
  it("is drawn whole on a terminal that does not know its width", () => {
    const written: string[] = [];
    const stderr = { isTTY: true, columns: 0, write: (text: string) => written.push(text) };
    progressBar({ stderr } as unknown as CommandContext, "downloading", "bytes").update(500, 1000);
    expect(written.join("")).toContain("50%  500 B of 1.0 kB");
  });
});

describe("a wait", () => {
  it("takes no more than the terminal's line, which alone can be taken back", async () => {
    const shown: string[] = [];
    const write = (text: string) => shown.push(text) > 0;
    let end = () => {};
    const work = new Promise<void>((resolve) => {
      end = resolve;
    });
    const what = `opening tinker://${"r".repeat(60)}/sampler_weights/final`;
    const waiting = whileWaiting({ isTTY: true, columns: 40, write }, what, work);
    await expect.poll(() => shown.length).toBeGreaterThan(0);
    end();
    await waiting;
    const [line] = shown;
    expect(line).toMatch(/opening tinker.*….*final 0 s$/);
    expect(displayWidth(line!.replace("\r\x1b[K", ""))).toBeLessThan(40);
    expect(shown.at(-1)).toBe("\r\x1b[K");
  });
});
