/** Several turns: a model that guesses numbers at random learns to halve the range, rewarded only for winning. */
import { type SamplingClient, ServiceClient } from "tinkerts";
import {
  conversations,
  environmentGroups,
  type MessageEnvironment,
  messageEnvironment,
  type RunOptions,
  runRollout,
  samplerPolicy,
  trainReinforcement,
  trainSupervised,
} from "tinkerts/cookbook";
import { startLocalBackend } from "tinkerts/local";
import { getRenderer, textOf } from "tinkerts/renderers";

/** Results that it must reach with tinkerts/nano: games won in three guesses. The best player wins all. */
export const bar = { before: { atMost: 0.7 }, after: { atLeast: 0.9 } };

const HIGHEST = 7;
const MAX_GUESSES = 3;
const NUMBERS = Array.from({ length: HIGHEST }, (_, index) => index + 1);
const OPENING = { role: "user", content: `Guess my number from 1 to ${HIGHEST}.` };

const hint = (guess: number, secret: number) => ({
  role: "user",
  content: guess < secret ? "Higher." : "Lower.",
});

/** A player who uses the hints but guesses at random. The model learns the rules from such games. */
function randomGame(secret: number, random: () => number) {
  let [low, high] = [1, HIGHEST];
  const messages = [OPENING];
  for (;;) {
    const guess = low + Math.floor(random() * (high - low + 1));
    messages.push({ role: "assistant", content: String(guess) });
    if (guess === secret) return { messages };
    messages.push(hint(guess, secret));
    [low, high] = guess < secret ? [guess + 1, high] : [low, guess - 1];
  }
}

/** The game as an environment. */
function game(secret: number): MessageEnvironment {
  let guesses = 0;
  return {
    start: () => [OPENING],
    step: ({ message }) => {
      guesses += 1;
      const guess = Number(textOf(message));
      if (guess === secret) return { reward: 1, isDone: true };
      const isOver = guesses === MAX_GUESSES || !NUMBERS.includes(guess);
      return { reward: 0, isDone: isOver, messages: isOver ? [] : [hint(guess, secret)] };
    },
  };
}

export async function run({ steps = 55, ...options }: RunOptions & { steps?: number | undefined }) {
  const { service, folder, signal, seed = 0 } = options;
  const player = async (modelPath: string) => service.createSamplingClient({ modelPath });
  /** The share of games won, each number several times. */
  const won = async (sampler: SamplingClient) => {
    const renderer = getRenderer({ model: await sampler.getBaseModel() }, await sampler.getTokenizer());
    const policy = samplerPolicy(sampler, { maxTokens: 8 });
    const games = Array.from({ length: 20 }, (_, round) =>
      NUMBERS.map((secret) => ({ secret, round })),
    ).flat();
    const rewards = games.map(async ({ secret, round }) => {
      const environment = messageEnvironment({ environment: game(secret), renderer });
      const { turns } = await runRollout(policy, environment, { seed: 100 * round + secret, signal });
      return turns.at(-1)!.reward;
    });
    return (await Promise.all(rewards)).reduce((sum, reward) => sum + reward, 0) / games.length;
  };

  const random = seededRandom(seed);
  const games = Array.from({ length: 960 }, () => randomGame(Math.ceil(random() * HIGHEST), random));
  const rules = await trainSupervised({
    ...options,
    folder: folder && `${folder}/rules`,
    data: conversations(games),
    batchSize: 8,
    testSize: 0,
  });
  const before = await won(await player(rules.samplerPath));
  const { samplerPath } = await trainReinforcement({
    ...options,
    folder: folder && `${folder}/play`,
    startFrom: rules.statePath,
    environments: ({ renderer, ...context }) =>
      environmentGroups({
        tasks: NUMBERS,
        environment: (secret) => messageEnvironment({ environment: game(secret), renderer }),
        ...context,
      }),
    steps,
    groupSize: 16,
    groupsPerBatch: HIGHEST,
    maxTokens: 8,
  });
  const after = await won(await player(samplerPath));
  return { before, after, samplerPath };
}

/** Random numbers that depend only on the seed. */
function seededRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

// A copy of this file runs by itself: npx tsx guess-number.ts
if (process.argv[1] === import.meta.filename) {
  await using backend = await startLocalBackend();
  await using service = new ServiceClient(backend); // with an API key, on the hosted service: new ServiceClient()
  console.log(await run({ service, model: "tinkerts/nano" }));
}
