// The engine, in a thread of its own so that the page stays smooth.
import { createEngine, fetchModel } from "tinkerts/engine";
import type { News, Request, Settings } from "./messages.js";
import { PigLatin } from "./pig-latin.js";

let opened: { pigLatin: PigLatin; settings: Settings } | undefined;
let isStopped = false;

const tell = (news: News) => postMessage(news);

async function open(modelAddress: string, settings: Settings): Promise<void> {
  const model = await fetchModel("tinkerts/nano", modelAddress);
  const engine = await createEngine({ models: [model], device: settings.device });
  opened = { pigLatin: new PigLatin(engine, model), settings };
  const [info] = await engine.models();
  tell({ kind: "opened", device: await engine.device(), parameters: info!.parameters });
}

async function train(): Promise<void> {
  const { pigLatin, settings } = opened!;
  isStopped = false;
  await pigLatin.forget();
  tell({ kind: "before", answers: await pigLatin.answersToHeldOut(settings.words) });
  const steps = pigLatin.train(settings);
  while (!isStopped) {
    const { done, value: progress } = await steps.next();
    if (done) break;
    tell({ kind: "progress", progress });
  }
  tell({ kind: "after", answers: await pigLatin.answersToHeldOut(settings.words) });
}

async function handle(request: Request): Promise<void> {
  switch (request.kind) {
    case "open":
      return open(request.modelAddress, request.settings);
    case "train":
      return train();
    case "stop":
      isStopped = true;
      return;
    case "ask":
      return tell({ kind: "answer", answer: await opened!.pigLatin.answer(request.word) });
    default:
      request satisfies never;
  }
}

addEventListener("message", ({ data }: MessageEvent<Request>) => {
  handle(data).catch((error: unknown) => {
    tell({ kind: "failed", message: error instanceof Error ? error.message : String(error) });
  });
});
