import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { type Player, RolloutTimeoutError } from "../../src/cookbook/environments/index.js";
import {
  agentic,
  type Environment,
  type EnvironmentGroup,
  RolloutPool,
  runRollout,
  runRolloutGroup,
  samplerPolicy,
} from "../../src/cookbook/index.js";
import type { RolloutOptions } from "../../src/cookbook/rollouts/index.js";
import { APIUserAbortError, RequestFailedError, ServiceClient } from "../../src/index.js";
import { type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { type EncodedTextChunk, ModelInput } from "../../src/wire/index.js";
import { FakeClock } from "../support/fake-clock.js";
import {
  action,
  done,
  endless,
  failing,
  hanging,
  never,
  next,
  observation,
  oneTurn,
  ScriptedEnvironment,
  ScriptedPolicy,
  TalkingEnvironment,
} from "./scripted-rollouts.js";

describe("an episode", () => {
  const run = (
    environment: ScriptedEnvironment,
    options: RolloutOptions = {},
    policy = new ScriptedPolicy(),
  ) => runRollout(policy, environment, options);

  it("goes on until the environment is done, and keeps what was sampled", async () => {
    const environment = new ScriptedEnvironment(observation(10), [
      next(15, { reward: 0.25, metrics: { moves: 1 }, logs: { saw: "a door" } }),
      done(1, { end: "completed", next: observation(20), isMasked: true }),
    ]);
    const trajectory = await run(environment);
    expect(trajectory.end).toBe("completed");
    expect(trajectory.finalObservation.length).toBe(20);
    expect(trajectory.turns).toMatchObject([
      { reward: 0.25, isDone: false, isMasked: false, metrics: { moves: 1 }, logs: { saw: "a door" } },
      { reward: 1, isDone: true, isMasked: true, metrics: { "stop/completed": 1, parse_error_masked: 1 } },
    ]);
    expect(trajectory.turns.map(({ observation }) => observation.length)).toEqual([10, 15]);
    expect(trajectory.turns[0]!.action).toEqual(action(3));
    expect(environment.numClosed).toBe(1);
    expect(environment.context?.signal.aborted).toBe(true);
  });

  it("has no reason where the environment gives none", async () => {
    const { turns, end } = await run(new ScriptedEnvironment(observation(10), [done(1)]));
    expect(end).toBeUndefined();
    expect(turns[0]!.metrics).toEqual({});
  });

  it("tells the environment its rules", async () => {
    const environment = oneTurn();
    await run(environment, agentic());
    expect(environment.context).toMatchObject({ ...agentic(), toolExecution: "sequential" });
  });

  it("ends before the turn that a limit forbids, and marks the last one", async () => {
    const { turns, end } = await run(endless(), { limits: { maxTurns: 2 } });
    expect(end).toBe("max_turns");
    expect(turns.map(({ isDone, metrics }) => [isDone, metrics])).toEqual([
      [false, {}],
      [true, { "stop/max_turns": 1 }],
    ]);
  });

  it.each([
    // 12 - 10 leaves 2 tokens, the next prompt of 14 none.
    [{ maxTrajectoryTokens: 12 }, [2], "max_tokens"],
    // A single token is as good as none.
    [{ maxTrajectoryTokens: 15 }, [5], "max_tokens"],
    [{ maxSampledTokens: 7 }, [7, 4], "max_sampled_tokens"],
    [{ maxSampledTokens: 8, maxTurnTokens: 4 }, [4, 4, 2], "max_sampled_tokens"],
    [{ maxTurnTokens: 1, maxTurns: 1 }, [1], "max_turns"],
    // Both are used up: what is read counts first.
    [{ maxTrajectoryTokens: 15, maxSampledTokens: 4 }, [4], "max_tokens"],
  ] as const)("gives each answer what %o leaves", async (limits, budgets, end) => {
    const policy = new ScriptedPolicy();
    const trajectory = await run(endless(), { limits }, policy);
    expect(policy.calls.map(({ maxTokens }) => maxTokens)).toEqual(budgets);
    expect(trajectory.end).toBe(end);
  });

  it("without a turn still has one, which carries the reason", async () => {
    const policy = new ScriptedPolicy();
    const { turns, end } = await run(endless(), { limits: { maxTrajectoryTokens: 11 } }, policy);
    expect(end).toBe("max_tokens");
    expect(turns).toMatchObject([{ reward: 0, isDone: true, metrics: { "stop/max_tokens": 1 } }]);
    expect(turns[0]!.observation.length).toBe(0);
    expect(policy.calls).toEqual([]);
  });

  it("whose first prompt is too long is one turn with its reward, and nothing is sampled", async () => {
    const policy = new ScriptedPolicy();
    const environment = new ScriptedEnvironment({ overflow: true, reward: -0.1, metrics: { big: 1 } }, []);
    const { turns, end } = await run(environment, {}, policy);
    expect(end).toBe("max_tokens");
    expect(turns).toMatchObject([{ reward: -0.1, metrics: { big: 1, "stop/max_tokens": 1 } }]);
    expect(turns[0]!.action.tokens.length).toBe(0);
    expect(policy.calls).toEqual([]);
  });

  it("counts answers that were cut off and went on", async () => {
    const steps = [next(14), next(18), done(1, { end: "completed" })];
    const { turns } = await run(
      new ScriptedEnvironment(observation(10), steps),
      {},
      new ScriptedPolicy(() => action(3, "length")),
    );
    expect(turns.map(({ metrics }) => metrics["num_truncations_max_turn_tokens"])).toEqual([
      undefined,
      undefined,
      2,
    ]);
  });

  it("holds tokens once that are read in several turns", async () => {
    const steps = [next(14), next(18), next(5), done(1)];
    const { turns } = await run(new ScriptedEnvironment(observation(10), steps));
    const tokens = turns.map(({ observation }) => (observation.chunks[0] as EncodedTextChunk).tokens);
    expect(tokens.map(({ length }) => length)).toEqual([10, 14, 18, 5]);
    expect(tokens.map((each) => each.every((token, place) => token === place))).toEqual(
      tokens.map(() => true),
    );
    expect(tokens.map(({ buffer }) => buffer.byteLength / 4)).toEqual([18, 18, 18, 5]);
    expect(tokens[0]!.buffer).toBe(tokens[2]!.buffer);
  });

  it("gives each turn a seed of its own, the same every time", async () => {
    const seeds = async (seed: number | undefined) => {
      const policy = new ScriptedPolicy();
      await run(endless(), { limits: { maxTurns: 3 }, seed }, policy);
      return policy.calls.map((call) => call.seed);
    };
    const first = await seeds(5);
    expect(new Set(first).size).toBe(3);
    expect(await seeds(5)).toEqual(first);
    expect(await seeds(6)).not.toEqual(first);
    expect(await seeds(undefined)).toEqual([undefined, undefined, undefined]);
  });

  describe("that takes too long", () => {
    it("keeps the turns it has", async () => {
      const clock = new FakeClock();
      const environment = hanging();
      const running = run(environment, { limits: { timeoutMs: 1000 }, clock });
      await clock.advance(1000);
      const { turns, end } = await running;
      expect(end).toBe("rollout_timeout");
      expect(turns).toMatchObject([{ isDone: true, metrics: { "stop/rollout_timeout": 1 } }]);
      expect(environment.numClosed).toBe(1);
      expect(environment.context?.signal.aborted).toBe(true);
      expect(clock.pending).toBe(0);
    });

    it("has one turn without a reward when it never began", async () => {
      const clock = new FakeClock();
      const running = run(new ScriptedEnvironment(never, []), { limits: { timeoutMs: 1000 }, clock });
      await clock.advance(1000);
      expect(await running).toMatchObject({
        end: "rollout_timeout",
        turns: [{ reward: 0, metrics: { "stop/rollout_timeout": 1 } }],
      });
    });

    it("ends between turns where the environment never waits", async () => {
      const clock = new FakeClock();
      const environment = new ScriptedEnvironment(observation(10), [
        () => {
          clock.stop(400);
          return next(14);
        },
      ]);
      const { turns, end } = await run(environment, { limits: { timeoutMs: 1000 }, clock });
      expect([turns.length, end]).toEqual([3, "rollout_timeout"]);
    });

    it("fails where it is a sample that does not come", async () => {
      const clock = new FakeClock();
      const environment = endless();
      const policy = new ScriptedPolicy((_, turn) => (turn === 0 ? action(3) : never()));
      const running = run(environment, { limits: { sampleTimeoutMs: 50, timeoutMs: 5000 }, clock }, policy);
      const failure = expect(running).rejects.toThrow(
        new RolloutTimeoutError("A sample took more than 50 ms."),
      );
      await clock.advance(50);
      await failure;
      expect(policy.calls[1]!.signal!.aborted).toBe(true);
      expect(environment.numClosed).toBe(1);
      expect(clock.pending).toBe(0);
    });

    it("is left to its fate when it does not even close", async () => {
      const clock = new FakeClock();
      const environment = new ScriptedEnvironment(observation(10), [done(1)], never);
      const failure = expect(run(environment, { clock })).rejects.toThrow(
        "could not be closed: It took more",
      );
      await clock.advance(30_000);
      await failure;
      expect(clock.pending).toBe(0);
    });
  });

  it("ends with its signal, whatever the environment does", async () => {
    const controller = new AbortController();
    const environment = hanging();
    const running = run(environment, { signal: controller.signal });
    await vi.waitFor(() => expect(environment.actions.length).toBe(2));
    controller.abort(new Error("enough"));
    await expect(running).rejects.toThrow(APIUserAbortError);
    expect(environment.numClosed).toBe(1);
  });

  it("leaves no listener on its signal", async () => {
    const { signal } = new AbortController();
    const added = vi.spyOn(signal, "addEventListener");
    const removed = vi.spyOn(signal, "removeEventListener");
    await run(oneTurn(), { signal, limits: { sampleTimeoutMs: 1000, timeoutMs: 1000 } });
    expect(added).toHaveBeenCalled();
    expect(removed.mock.calls.length).toBe(added.mock.calls.length);
  });

  it("closes the environment also when it was aborted before it began", async () => {
    const environment = oneTurn();
    await expect(run(environment, { signal: AbortSignal.abort() })).rejects.toThrow(APIUserAbortError);
    expect([environment.context, environment.numClosed]).toEqual([undefined, 1]);
  });

  it.each([
    ["fails with what the environment throws", failing(), "the sandbox broke"],
    [
      "fails when start throws",
      new ScriptedEnvironment(() => Promise.reject(new Error("no start")), []),
      "no start",
    ],
    [
      "refuses rewards that are no numbers",
      oneTurn(Number.NaN),
      "The reward that step gives must be a finite number, got NaN.",
    ],
    [
      "wants something to read next",
      new ScriptedEnvironment(observation(10), [{ reward: 0, isDone: false }]),
      "must give what the model reads next",
    ],
  ])("%s", async (_, environment, message) => {
    await expect(run(environment)).rejects.toThrow(message);
    expect(environment.numClosed).toBe(1);
  });

  it("ends where the conversation no longer fits the model, but does not begin so", async () => {
    const tooLong = () => {
      throw new RequestFailedError("The model reads at most 20 tokens.", {
        requestId: "1",
        category: "user",
      });
    };
    const policy = new ScriptedPolicy((_, turn) => (turn < 2 ? action(3) : tooLong()));
    const { turns, end } = await run(endless(), {}, policy);
    expect([turns.length, end]).toEqual([2, "context_overflow"]);
    expect(turns.at(-1)).toMatchObject({ isDone: true, metrics: { "stop/context_overflow": 1 } });
    await expect(run(endless(), {}, new ScriptedPolicy(tooLong))).rejects.toThrow("reads at most 20 tokens");
  });

  it("needs a logprob for each token", async () => {
    const policy = new ScriptedPolicy(() => ({ ...action(3), logprobs: new Float32Array(2) }));
    await expect(run(oneTurn(), {}, policy)).rejects.toThrow("got 2 for 3");
  });

  it.each([
    [{ limits: { maxTurns: 0 } }, "limits.maxTurns must be a positive integer"],
    [{ limits: { maxTurnTokens: 1.5 } }, "limits.maxTurnTokens must be"],
    [{ limits: { timeoutMs: -1 } }, "limits.timeoutMs must be a number of milliseconds above 0"],
    [{ parseErrors: { retryMessage: "again" } }, "parseErrors.retryMessage must be a text with {details}"],
    [{ parseErrors: { penalty: -1 } }, "parseErrors.penalty must be"],
    [{ termination: { graderTimeoutMs: 0 } }, "termination.graderTimeoutMs must be"],
  ] as const)("refuses %o", async (options, message) => {
    await expect(run(oneTurn(), options)).rejects.toThrow(message);
  });

  describe("with hooks", () => {
    it("takes messages before a turn, which count as read", async () => {
      const environment = new TalkingEnvironment(observation(10), [next(14), done(1, { end: "completed" })]);
      const policy = new ScriptedPolicy();
      const { messages } = await run(
        environment,
        {
          limits: { maxTrajectoryTokens: 100 },
          hooks: {
            beforeTurn: ({ turns }) =>
              turns.length === 1 ? [{ role: "user", content: "one turn left" }] : undefined,
          },
        },
        policy,
      );
      expect(policy.calls.map(({ maxTokens }) => maxTokens)).toEqual([90, 88]);
      expect(messages).toEqual([{ role: "user", content: "one turn left" }]);
    });

    it("fails if an environment takes no messages", async () => {
      const hooks = { beforeTurn: () => [{ role: "user" as const, content: "hello" }] };
      await expect(run(oneTurn(), { hooks })).rejects.toThrow("this environment does not take any");
    });

    it("ends for another reason where the hook gives one", async () => {
      const { turns, end } = await run(oneTurn(), { hooks: { onStop: () => "solved" } });
      expect([end, turns[0]!.metrics]).toEqual(["solved", { "stop/solved": 1 }]);
    });

    it("ends as it would where the hook says nothing", async () => {
      const heard: string[] = [];
      const hooks = {
        onStop: (reason: string) => {
          heard.push(reason);
          return undefined;
        },
      };
      const { end } = await run(endless(), { limits: { maxTurns: 1 }, hooks });
      expect([end, heard]).toEqual(["max_turns", ["max_turns"]]);
    });

    it("continues if the hook says so, without the budget that is used up", async () => {
      const policy = new ScriptedPolicy();
      const asked: string[] = [];
      const { turns, end } = await run(
        endless(),
        {
          limits: { maxTrajectoryTokens: 15, maxSampledTokens: 20 },
          hooks: {
            onStop: (reason) => {
              asked.push(reason);
              return asked.length < 3 ? false : undefined;
            },
          },
        },
        policy,
      );
      expect(policy.calls.map(({ maxTokens }) => maxTokens)).toEqual([5, 17, 14]);
      expect([end, asked]).toEqual(["max_tokens", ["max_tokens", "max_tokens", "max_tokens"]]);
      expect(turns.map(({ isDone }) => isDone)).toEqual([false, false, true]);
    });

    it("goes on after an environment's own end, if there is something to read", async () => {
      const steps = [
        done(0.5, { end: "completed", next: observation(16) }),
        done(1, { end: "completed", next: observation(20) }),
      ];
      const hooks = {
        onStop: (_: string, { turns }: { turns: readonly unknown[] }) =>
          turns.length > 1 ? undefined : (false as const),
      };
      const { turns } = await run(new ScriptedEnvironment(observation(10), steps), { hooks });
      expect(turns.map(({ isDone, metrics }) => [isDone, metrics])).toEqual([
        [false, {}],
        [true, { "stop/completed": 1 }],
      ]);
      const deadEnd = run(oneTurn(), { hooks });
      await expect(deadEnd).rejects.toThrow("the environment gave no next observation");
    });

    it("says when it was graded and when it is over", async () => {
      const told: string[] = [];
      const hooks = { onGraded: () => void told.push("graded"), onEnd: () => void told.push("end") };
      await run(oneTurn(), { hooks });
      await run(endless(), { hooks, limits: { maxTurns: 1 } });
      await expect(run(failing(), { hooks })).rejects.toThrow();
      expect(told).toEqual(["graded", "end", "end"]);
    });

    it("is not timed out by a slow hook at its end", async () => {
      const clock = new FakeClock();
      const hooks = { onEnd: () => clock.sleep(5000) };
      const running = run(oneTurn(), { hooks, clock, limits: { timeoutMs: 1000 } });
      await clock.advance(6000);
      expect((await running).end).toBe("completed");
    });
  });
});

describe("with a model", () => {
  let backend: LocalBackend;
  let service: ServiceClient;
  beforeAll(async () => {
    backend = await startLocalBackend();
    service = new ServiceClient(backend);
  });
  afterAll(async () => {
    await service.close();
    await backend.close();
  });

  it("the same seeds give the same episodes, token for token", async () => {
    const sampler = await service.createSamplingClient({ baseModel: "tinkerts/nano" });
    const policy = samplerPolicy(sampler, { maxTokens: 6 });
    /** Three turns, each prompt begun with what was read and sampled before. */
    const group: EnvironmentGroup = {
      makeEnvironments: () =>
        Array.from({ length: 3 }, () => {
          let tokens = [1, 2, 3, 4];
          let numTurns = 0;
          const read = () => ({ prompt: ModelInput.fromInts(tokens), stop: [] });
          return {
            start: async () => read(),
            step: async ({ tokens: sampled }) => {
              numTurns += 1;
              tokens = [...tokens, ...sampled, 5];
              return { reward: sampled[0]! % 7, isDone: numTurns === 3, next: read(), end: "completed" };
            },
          } satisfies Environment;
        }),
    };
    const episodes = async (seed: number, pool?: RolloutPool) => {
      const { trajectories } = await runRolloutGroup(group, policy, { seed, pool });
      return trajectories.map(({ turns }) =>
        turns.map(({ action }) => [[...action.tokens], [...action.logprobs]]),
      );
    };
    const first = await episodes(11);
    expect(await episodes(11, new RolloutPool({ maxRollouts: 1 }))).toEqual(first);
    expect(await episodes(12)).not.toEqual(first);
    // Members of a group differ, or there would be nothing to compare.
    expect(new Set(first.map((turns) => JSON.stringify(turns))).size).toBe(3);
  });
});

describe("a player", () => {
  /** Asks the policy twice, whatever anybody says. */
  const player = (more: Partial<Player> = {}): Player & { numClosed: number } => ({
    numClosed: 0,
    async play(policy, { signal }) {
      const turns = [];
      for (const length of [4, 9]) {
        const { prompt, stop } = observation(length);
        const taken = await policy.act({ prompt, stop }, { signal });
        turns.push({
          observation: prompt,
          action: taken,
          reward: length,
          isDone: false,
          isMasked: false,
          metrics: {},
          logs: {},
        });
      }
      return { turns, finalObservation: ModelInput.empty(), end: "completed" };
    },
    close() {
      this.numClosed += 1;
    },
    ...more,
  });

  it("plays its whole episode by itself, beside environments that are stepped", async () => {
    const ended: number[] = [];
    const made = [player(), oneTurn(7)] as const;
    const group = await runRolloutGroup({ makeEnvironments: () => made }, new ScriptedPolicy(), {
      hooks: { onEnd: ({ turns }) => void ended.push(turns.length) },
    });
    expect(group.trajectories.map(({ turns, end }) => [turns.length, end])).toEqual([
      [2, "completed"],
      [1, "completed"],
    ]);
    expect(group.trajectories[0]!.turns.at(-1)).toMatchObject({
      isDone: true,
      metrics: { "stop/completed": 1 },
    });
    expect(ended.sort()).toEqual([1, 2]);
    expect(made.map(({ numClosed }) => numClosed)).toEqual([1, 1]);
  });

  it("is abandoned when the rollout is aborted, and fails with its own error or a reward that is none", async () => {
    const abort = new AbortController();
    const hanging = player({
      play: () => {
        abort.abort();
        return never();
      },
    });
    await expect(runRollout(new ScriptedPolicy(), hanging, { signal: abort.signal })).rejects.toThrow(
      APIUserAbortError,
    );
    expect(hanging.numClosed).toBe(1);
    const broken = player({ play: () => Promise.reject(new RangeError("no such program")) });
    await expect(runRollout(new ScriptedPolicy(), broken)).rejects.toThrow("no such program");
    const wrong = player({
      play: async (policy, context) => {
        const { turns, ...rest } = await player().play(policy, context);
        return { turns: turns.map((turn) => ({ ...turn, reward: Number.NaN })), ...rest };
      },
    });
    await expect(runRollout(new ScriptedPolicy(), wrong)).rejects.toThrow("reward that play gives");
  });
});
