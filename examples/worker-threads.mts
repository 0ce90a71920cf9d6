/**
 * One sampler, used from several threads. A client cannot be sent to another thread; its handle can: plain data that
 * names the sampler and holds no key. Each thread makes its own copy of the client from it.
 *
 * This file is both the program and the worker that it starts.
 *
 * Runs on the built-in backend, or on the server in TINKER_BASE_URL (with TINKER_API_KEY if it needs one).
 */
import assert from "node:assert/strict";
import { isMainThread, parentPort, threadId, Worker, workerData } from "node:worker_threads";
import { type SamplerHandle, SamplingClient, ServiceClient } from "tinkerts";
import { startLocalBackend } from "tinkerts/local";

const baseModel = "tinkerts/nano"; // on another server, one of its models
const threads = 4;
const questions = Array.from({ length: 80 }, (_, index) => `${index}+${index % 7}=`);

interface Task {
  readonly handle: SamplerHandle;
  readonly questions: readonly string[];
}

async function answersOf(sampler: SamplingClient, asked: readonly string[]): Promise<string[]> {
  const tokenizer = await sampler.getTokenizer();
  const samplingParams = { maxTokens: 6, temperature: 0, stop: "\n" };
  const responses = await Promise.all(
    asked.map((question) => sampler.sample({ prompt: tokenizer.encode(question), samplingParams })),
  );
  return responses.map(({ sequences }) => tokenizer.decode(sequences[0]!.tokens).trim());
}

/** In a worker: a copy of the sampler answers this thread's share and is closed. */
async function work({ handle, questions }: Task): Promise<void> {
  await using sampler = await SamplingClient.fromSamplerHandle(handle);
  const answers = await answersOf(sampler, questions);
  console.log(`  thread ${threadId}: ${answers.length} answers, the first one ${questions[0]}${answers[0]}`);
  parentPort!.postMessage(answers);
}

/** In the program: starts a worker for a share of the questions. */
function inWorker(task: Task): Promise<string[]> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL(import.meta.url), { workerData: task });
    worker.once("message", resolve);
    worker.once("error", reject);
  });
}

async function main(): Promise<void> {
  await using backend = process.env["TINKER_BASE_URL"] ? undefined : await startLocalBackend();
  await using service = new ServiceClient(backend);
  const sampler = await service.createSamplingClient({ baseModel });
  const handle = sampler.getSamplerHandle();
  console.log(`${threads} threads share the sampler ${handle.samplingSessionId}:`);

  const share = questions.length / threads;
  const shares = Array.from({ length: threads }, (_, index) =>
    questions.slice(index * share, (index + 1) * share),
  );
  // The session is this thread's: it stays open until every worker is done.
  const answers = (await Promise.all(shares.map((each) => inWorker({ handle, questions: each })))).flat();

  assert.deepEqual(answers, await answersOf(sampler, questions), "a thread got other answers");
  console.log(`${answers.length} answers from ${threads} threads, the same as this thread gets.`);
}

await (isMainThread ? main() : work(workerData as Task));
