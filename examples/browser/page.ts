import { drawLosses } from "./loss-chart.js";
import type { Answer, News, Progress, Request, Settings } from "./messages.js";

const SHOWN_ANSWERS = 8;

function find<T extends Element>(id: string, type: abstract new (...args: never[]) => T): T {
  const found = document.getElementById(id);
  if (!(found instanceof type)) throw new Error(`the page has no ${type.name} with the id ${id}`);
  return found;
}

const trainButton = find("train", HTMLButtonElement);
const stopButton = find("stop", HTMLButtonElement);
const askForm = find("ask", HTMLFormElement);
const askButton = find("ask-button", HTMLButtonElement);
const wordField = find("word", HTMLInputElement);
const chart = find("chart", SVGSVGElement);
const progressBar = find("progress", HTMLProgressElement);
const answerRows = find("answers", HTMLTableSectionElement);

const worker = new Worker(new URL("./engine-worker.ts", import.meta.url), { type: "module" });
const ask = (request: Request) => worker.postMessage(request);
const show = (id: string, text: string) => {
  find(id, HTMLElement).textContent = text;
};

let settings: Settings;
let losses: number[] = [];
let wasStopped = false;

/** The address may choose a device and shorten a visit. */
function readSettings(given: URLSearchParams): Settings {
  const device = given.get("device") ?? "auto";
  if (device !== "auto" && device !== "cpu" && device !== "gpu")
    throw new Error(`device must be auto, cpu or gpu, got ${device}`);
  const whole = (name: string, usual: number) => {
    const value = Number(given.get(name) ?? usual);
    if (!Number.isInteger(value) || value < 1)
      throw new Error(`${name} must be a whole number from 1 on, got ${value}`);
    return value;
  };
  return { device, steps: whole("steps", 150), batchSize: whole("batchSize", 16), words: whole("words", 40) };
}

function setBusy(isBusy: boolean): void {
  trainButton.disabled = isBusy;
  stopButton.disabled = !isBusy;
  wordField.disabled = isBusy;
  askButton.disabled = isBusy;
}

function showProgress({ step, lossPerWord, tokensPerSecond }: Progress): void {
  losses.push(lossPerWord);
  progressBar.value = step / settings.steps;
  show("step", `${step} of ${settings.steps}`);
  show("loss", lossPerWord.toFixed(3));
  show("speed", Math.round(tokensPerSecond).toLocaleString("en"));
  drawLosses(chart, losses, settings.steps);
}

function showAnswers(column: "before" | "after", answers: readonly Answer[]): void {
  const every = Math.ceil(answers.length / SHOWN_ANSWERS);
  const shown = answers.filter((_, index) => index % every === 0);
  if (column === "before") answerRows.replaceChildren(...shown.map(answerRow));
  for (const [row, answer] of shown.entries())
    answerRows.rows[row]!.cells[column === "before" ? 1 : 2]!.replaceChildren(...verdict(answer));
  const right = answers.filter(({ isRight }) => isRight).length;
  show(`right-${column}`, `${right} of ${answers.length}`);
}

function answerRow({ word }: Answer): HTMLTableRowElement {
  const row = document.createElement("tr");
  const header = document.createElement("th");
  header.scope = "row";
  header.textContent = word;
  row.append(header, document.createElement("td"), document.createElement("td"));
  return row;
}

/** The answer, with a mark that is also said aloud. */
function verdict({ text, isRight }: Answer): Node[] {
  const mark = document.createElement("span");
  mark.className = isRight ? "mark right" : "mark wrong";
  mark.setAttribute("role", "img");
  mark.setAttribute("aria-label", isRight ? "right" : "wrong");
  mark.textContent = isRight ? "✓" : "✗";
  return [mark, document.createTextNode(` ${text}`)];
}

function hear(news: News): void {
  switch (news.kind) {
    case "opened":
      show("device-name", news.device.name);
      show("device-note", news.device.note === undefined ? "" : `(${news.device.note})`);
      show("status", `Ready: tinkerts/nano, ${(news.parameters / 1e6).toFixed(1)} million parameters.`);
      setBusy(false);
      return;
    case "before":
      showAnswers("before", news.answers);
      show("status", "Training…");
      return;
    case "progress":
      showProgress(news.progress);
      return;
    case "after":
      showAnswers("after", news.answers);
      show("status", wasStopped ? "Stopped. It keeps what it has learned so far." : "Trained.");
      setBusy(false);
      return;
    case "answer":
      find("answer", HTMLOutputElement).replaceChildren(...verdict(news.answer));
      setBusy(false);
      return;
    case "failed":
      fail(news.message);
      return;
    default:
      news satisfies never;
  }
}

function fail(message: string): void {
  show("status", `This did not work: ${message}`);
  setBusy(true);
  stopButton.disabled = true;
}

worker.addEventListener("message", ({ data }: MessageEvent<News>) => hear(data));
worker.addEventListener("error", ({ message }) => fail(message || "the worker could not be started"));

trainButton.addEventListener("click", () => {
  losses = [];
  wasStopped = false;
  drawLosses(chart, losses, settings.steps);
  progressBar.value = 0;
  for (const id of ["step", "loss", "speed", "right-before", "right-after"]) show(id, "–");
  answerRows.replaceChildren();
  show("status", "Asking the model as it is…");
  setBusy(true);
  ask({ kind: "train" });
});

stopButton.addEventListener("click", () => {
  wasStopped = true;
  stopButton.disabled = true;
  show("status", "Stopping…");
  ask({ kind: "stop" });
});

askForm.addEventListener("submit", (event) => {
  event.preventDefault();
  setBusy(true);
  stopButton.disabled = true;
  ask({ kind: "ask", word: wordField.value });
});

try {
  settings = readSettings(new URLSearchParams(location.search));
  ask({ kind: "open", modelAddress: new URL("nano/", document.baseURI).href, settings });
} catch (error) {
  fail(error instanceof Error ? error.message : String(error));
}
