import { describe, expect, it } from "vitest";
import { createDisplay, drawCurve } from "./display.js";

function recorder(terminal: { isTTY?: boolean; columns?: number } = {}) {
  const written: string[] = [];
  const write = (text: string) => written.push(text) > 0;
  return { written, stream: { write, ...terminal } as unknown as NodeJS.WriteStream };
}

const eraseLine = "\r\x1b[K";

describe("createDisplay", () => {
  it("draws one line again and again on a terminal, never wider than it", () => {
    const bar = recorder({ isTTY: true, columns: 60 });
    const progress = createDisplay(recorder().stream, bar.stream).progress(20);
    progress.update(10, "loss 0.5");
    progress.update(10, "loss 0.5 and more to say here");
    progress.update(20, `loss ${"9".repeat(80)}`);
    progress.end();
    const [first, second, third] = bar.written.map((text) => text.replace(eraseLine, "(again)"));
    expect(first).toMatch(/^\(again\) {2}━{12}╌{12} 10\/20 {2}loss 0\.5 {2}\d+ s left$/);
    expect(second).toMatch(
      /^\(again\) {2}━{4,5}╌{4,5} 10\/20 {2}loss 0\.5 and more to say here {2}\d+ s left$/,
    );
    expect(third).toHaveLength("(again)".length + 59);
    expect(bar.written[3]).toBe("\n");
  });

  it("writes at most ten plain lines elsewhere, the last step among them", () => {
    const bar = recorder();
    const progress = createDisplay(recorder().stream, bar.stream).progress(25);
    for (let step = 1; step <= 25; step += 1) progress.update(step, `loss ${step}`);
    progress.end();
    expect(bar.written.length).toBeLessThanOrEqual(10);
    expect(bar.written.at(-1)).toBe("  step 25/25  loss 25  0 s left\n");
    expect(bar.written.join("")).not.toContain("\r");
  });

  it("keeps text and progress apart", () => {
    const [text, bar] = [recorder(), recorder()];
    createDisplay(text.stream, bar.stream).say("hello");
    expect([text.written, bar.written]).toEqual([["hello\n"], []]);
  });
});

describe("drawCurve", () => {
  it("draws each value as high as it is, in eighths of a line", () => {
    expect(drawCurve([0, 1 / 16, 0.5, 0.75, 1], { height: 2 })).toBe(
      ["  100% │   ▄█", "    0% │ ▁███"].join("\n"),
    );
  });

  it("takes the mean of neighbours where there are more values than columns", () => {
    expect(drawCurve([0, 1, 1, 1], { width: 2, height: 1 })).toBe("  100% │▄█");
  });
});
