import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import {
  agentic,
  assembleData,
  type Environment,
  type EnvironmentGroup,
  FailureCounts,
  failFast,
  minViableGroup,
  type RolloutGroupOptions,
  type RolloutOptions,
  RolloutPool,
  RolloutTimeoutError,
  retryOnFailure,
  rolloutDefaults,
  rolloutGroup,
  runRollout,
  samplerPolicy,
  type TrajectoryGroup,
  type Turn,
  totalRewards,
} from "../../src/cookbook/index.js";
import { writeRollouts } from "../../src/cookbook/rollouts/rollout-files.node.js";
import { APIConnectionError, APIUserAbortError, GoneError, ServiceClient } from "../../src/index.js";
import { type LocalBackend, startLocalBackend } from "../../src/local/index.js";
import { type EncodedTextChunk, ModelInput } from "../../src/wire/index.js";
import { FakeClock } from "../support/fake-clock.js";
import {
  action,
  done,
  never,
  next,
  observation,
  ScriptedEnvironment,
  ScriptedPolicy,
  scriptedGroup,
  TalkingEnvironment,
} from "./scripted-rollouts.js";

const endless = () => new ScriptedEnvironment(observation(10), [next(14)]);
const oneTurn = (reward = 1) =>
  new ScriptedEnvironment(observation(10), [done(reward, { end: "completed" })]);
const failing = (message = "the sandbox broke") =>
  new ScriptedEnvironment(observation(10), [
    () => {
      throw new RangeError(message);
    },
  ]);
const hanging = () => new ScriptedEnvironment(observation(10), [next(14), never]);

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

  it("wants a logprob for each token", async () => {
    const policy = new ScriptedPolicy(() => ({ ...action(3), logprobs: new Float32Array(2) }));
    await expect(run(oneTurn(), {}, policy)).rejects.toThrow("got 2 for 3");
  });

  it.each([
    [{ limits: { maxTurns: 0 } }, "limits.maxTurns must be a whole number from 1"],
    [{ limits: { maxTurnTokens: 1.5 } }, "limits.maxTurnTokens must be"],
    [{ limits: { timeoutMs: -1 } }, "limits.timeoutMs must be a number of milliseconds above 0"],
    [{ parseErrors: { retryMessage: "again" } }, "parseErrors.retryMessage must contain {details}"],
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

    it("says so where an environment takes no messages", async () => {
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

    it("goes on where the hook says so, without the budget that is used up", async () => {
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
      await expect(deadEnd).rejects.toThrow("the environment gave nothing to read next");
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

describe("a group", () => {
  const run = (group: EnvironmentGroup, options: RolloutGroupOptions = {}) =>
    rolloutGroup(group, new ScriptedPolicy(), options);
  const expectAllClosed = (made: readonly (readonly ScriptedEnvironment[])[]) =>
    expect(made.flat().map(({ numClosed }) => numClosed)).toEqual(made.flat().map(() => 1));

  it("runs its episodes at once and adds its own rewards", async () => {
    const seen: (readonly Environment[])[] = [];
    const { group, made, counts } = scriptedGroup(3, (_, member) => oneTurn(member), {
      groupRewards: (trajectories, { environments }) => {
        seen.push(environments);
        expect(made.flat().map(({ numClosed }) => numClosed)).toEqual([0, 0, 0]);
        return trajectories.map((_, place) => ({ reward: 10 * place, metrics: { rank: place } }));
      },
      tags: ["sums"],
    });
    const result = await run(group);
    expect(totalRewards(result)).toEqual([0, 11, 22]);
    expect(result).toMatchObject({
      tags: ["sums"],
      failures: [],
      metrics: [{ rank: 0 }, { rank: 1 }, { rank: 2 }],
    });
    expect(seen).toEqual([made[0]]);
    expect(counts.closed).toBe(1);
    expectAllClosed(made);
  });

  it("fails with the first failure, which ends the others, and everything is closed", async () => {
    const { group, made, counts } = scriptedGroup(3, (_, member) => (member === 1 ? failing() : hanging()));
    await expect(run(group)).rejects.toThrow(new RangeError("the sandbox broke"));
    expectAllClosed(made);
    expect(counts.closed).toBe(1);
    expect(made[0]![0]!.context?.signal.aborted).toBe(true);
  });

  it("tries failed episodes again in new environments, and closes the failed ones", async () => {
    const { group, made } = scriptedGroup(3, (making, member) =>
      making < 2 && member === 1 ? failing() : oneTurn(member),
    );
    const result = await run(group, { strategy: retryOnFailure() });
    expect(totalRewards(result)).toEqual([0, 1, 2]);
    expect(result.failures).toEqual([
      { type: "RangeError", message: "the sandbox broke" },
      { type: "RangeError", message: "the sandbox broke" },
    ]);
    expect(made.length).toBe(3);
    expectAllClosed(made);
  });

  it("goes without a group whose retries are used up", async () => {
    const { group, made } = scriptedGroup(2, (_, member) => (member === 1 ? failing() : hanging()));
    const result = await run(group, { strategy: retryOnFailure({ maxRetries: 2 }) });
    expect(result.trajectories).toEqual([]);
    expect(result.failures.length).toBe(3);
    expectAllClosed(made);
  });

  it("tries an episode again that takes too long", async () => {
    const clock = new FakeClock();
    const { group, made } = scriptedGroup(2, (making, member) =>
      making === 0 && member === 0 ? hanging() : oneTurn(member),
    );
    const running = run(group, { strategy: retryOnFailure({ timeoutMs: 1000 }), clock });
    await clock.advance(1000);
    const result = await running;
    expect(totalRewards(result)).toEqual([0, 1]);
    expect(result.failures).toEqual([
      { type: "RolloutTimeoutError", message: "An episode took more than 1000 ms." },
    ]);
    expectAllClosed(made);
    expect(clock.pending).toBe(0);
  });

  it("goes on with enough of its episodes", async () => {
    const { group, made } = scriptedGroup(4, (_, member) => (member === 0 ? failing() : oneTurn(member)));
    const result = await run(group, { strategy: minViableGroup({ maxRetries: 0 }) });
    expect(totalRewards(result)).toEqual([1, 2, 3]);
    expect(result.failures.length).toBe(1);
    expectAllClosed(made);
  });

  it("tries again only while there are too few", async () => {
    const { group, made } = scriptedGroup(4, (_, member) => (member < 2 ? failing() : oneTurn(member)));
    const result = await run(group, { strategy: minViableGroup({ minSuccessful: 3 }) });
    expect(result.trajectories).toEqual([]);
    // Two failed, three were tried again.
    expect([result.failures.length, made.length]).toEqual([5, 4]);
    const enough = scriptedGroup(4, (_, member) => (member < 2 ? failing() : oneTurn(member)));
    const viable = await run(enough.group, { strategy: minViableGroup({ minSuccessful: 1, maxRetries: 0 }) });
    expect([viable.trajectories.length, enough.made.length]).toEqual([2, 1]);
  });

  it("ends the run with what would fail for every episode, whatever the strategy", async () => {
    const details = { status: 410, headers: new Headers(), body: undefined, message: "the session is over" };
    const gone = new GoneError(details);
    for (const error of [new APIConnectionError("nobody there"), gone]) {
      const { group, made } = scriptedGroup(2, oneTurn);
      const policy = new ScriptedPolicy(() => Promise.reject(error));
      await expect(rolloutGroup(group, policy, { strategy: minViableGroup() })).rejects.toThrow(error);
      expect(made.length).toBe(1);
      expectAllClosed(made);
    }
  });

  it("ends with its signal, also while environments are made, which are closed when they come", async () => {
    const controller = new AbortController();
    const late = oneTurn();
    let finish = () => {};
    const group: EnvironmentGroup = {
      makeEnvironments: () =>
        new Promise((resolve) => {
          finish = () => resolve([late]);
        }),
    };
    const running = run(group, { signal: controller.signal, strategy: minViableGroup() });
    setImmediate(() => controller.abort());
    await expect(running).rejects.toThrow(APIUserAbortError);
    finish();
    await vi.waitFor(() => expect(late.numClosed).toBe(1));
  });

  it.each([
    ["no environments", () => [], "makeEnvironments must give at least one environment"],
    ["environments that cannot be made", () => Promise.reject(new Error("no room")), "no room"],
  ] as const)("fails with %s, or is left out", async (_, makeEnvironments, message) => {
    let numClosed = 0;
    const group = {
      makeEnvironments,
      close: () => {
        numClosed += 1;
      },
    };
    await expect(run(group)).rejects.toThrow(message);
    const { trajectories, failures } = await run(group, { strategy: retryOnFailure() });
    expect([trajectories, failures.length]).toEqual([[], 1]);
    expect(failures[0]!.message).toContain(message);
    expect(numClosed).toBe(2);
  });

  it("does not wait for ever until environments are made", async () => {
    const clock = new FakeClock();
    const running = run({ makeEnvironments: never }, { clock, limits: { timeoutMs: 1000 } });
    const failure = expect(running).rejects.toThrow("makeEnvironments took more than 1000 ms");
    await clock.advance(1000);
    await failure;
  });

  it("counts what cannot be closed and loses nothing", async () => {
    const { group } = scriptedGroup(
      2,
      () =>
        new ScriptedEnvironment(observation(10), [done(1)], () => {
          throw new Error("still in use");
        }),
      { close: () => Promise.reject(new Error("the group too")) },
    );
    const result = await run(group);
    expect(totalRewards(result)).toEqual([1, 1]);
    expect(result.failures.map(({ type }) => type)).toEqual(["CloseError", "CloseError", "CloseError"]);
    expect(result.failures[2]!.message).toContain("the group too");
  });

  describe("by the reasons for the ends of its episodes", () => {
    const cut = (reward: number) => () => new ScriptedEnvironment(observation(10), [next(14, { reward })]);
    const limits = { maxTurns: 1 };

    it("rewards nobody for running into a limit", async () => {
      const rewards = [{ reward: 2 }, { reward: -3, metrics: { judged: 1 } }];
      const { group } = scriptedGroup(2, cut(0.5), { groupRewards: () => rewards });
      const result = await run(group, { limits, termination: { zeroRewardOnLimit: true } });
      expect(totalRewards(result)).toEqual([0, -2.5]);
      expect(result.metrics).toEqual([{ zero_reward_on_limit: 1 }, { judged: 1 }]);
    });

    it("leaves alone what is no limit", async () => {
      const { group } = scriptedGroup(1, cut(0.5));
      const termination = { zeroRewardOnLimit: true, limits: ["rollout_timeout"] };
      expect(totalRewards(await run(group, { limits, termination }))).toEqual([0.5]);
    });

    it("is not graded when all ran out of time", async () => {
      const clock = new FakeClock();
      let numGraded = 0;
      const groupRewards = (trajectories: readonly unknown[]) => {
        numGraded += 1;
        return trajectories.map(() => ({ reward: 1 }));
      };
      const termination = { zeroRewardOnLimit: true, skipGradingOnTimeout: true };
      const play = async (make: (making: number, member: number) => ScriptedEnvironment) => {
        const { group } = scriptedGroup(2, make, { groupRewards });
        const running = run(group, { clock, limits: { timeoutMs: 100 }, termination });
        await clock.advance(100);
        return totalRewards(await running);
      };
      expect(await play(hanging)).toEqual([0, 0]);
      expect(numGraded).toBe(0);
      // One that ended by itself: all are graded.
      expect(await play((_, member) => (member === 0 ? hanging() : oneTurn(1)))).toEqual([0, 2]);
      expect(numGraded).toBe(1);
    });

    it("fails when grading takes too long", async () => {
      const clock = new FakeClock();
      const { group, made } = scriptedGroup(1, () => oneTurn(), { groupRewards: never });
      const running = run(group, { clock, termination: { graderTimeoutMs: 500 } });
      const failure = expect(running).rejects.toThrow("Grading took more than 500 ms");
      await clock.advance(500);
      await failure;
      expectAllClosed(made);
    });

    it.each([
      [[], "a reward for each of 1 episodes, got 0"],
      [[{ reward: Number.POSITIVE_INFINITY }], "must be a finite number, got Infinity"],
    ])("refuses rewards like %j", async (rewards, message) => {
      const { group } = scriptedGroup(1, () => oneTurn(), { groupRewards: () => rewards });
      await expect(run(group)).rejects.toThrow(message);
    });
  });
});

describe("a pool of episodes", () => {
  it("lets no more of them run at a time, over all groups", async () => {
    const pool = new RolloutPool({ maxRollouts: 3 });
    let most = 0;
    const group = () =>
      scriptedGroup(
        4,
        () =>
          new ScriptedEnvironment(observation(10), [
            async () => {
              most = Math.max(most, pool.running);
              await new Promise((resolve) => setTimeout(resolve, 1));
              return done(1);
            },
          ]),
      ).group;
    const results = await Promise.all(
      Array.from({ length: 5 }, () => rolloutGroup(group(), new ScriptedPolicy(), { pool })),
    );
    expect(results.map(({ trajectories }) => trajectories.length)).toEqual([4, 4, 4, 4, 4]);
    expect([most, pool.running, pool.waiting]).toEqual([3, 0, 0]);
  });

  it("lets go of those that wait when their run is aborted", async () => {
    const pool = new RolloutPool({ maxRollouts: 1 });
    const controller = new AbortController();
    const { group, made } = scriptedGroup(3, hanging);
    const running = rolloutGroup(group, new ScriptedPolicy(), { pool, signal: controller.signal });
    await vi.waitFor(() => expect(pool.waiting).toBe(2));
    controller.abort();
    await expect(running).rejects.toThrow(APIUserAbortError);
    expect([pool.running, pool.waiting]).toEqual([0, 0]);
    expect(made[0]!.map(({ context, numClosed }) => [context === undefined, numClosed])).toEqual([
      [false, 1],
      [true, 1],
      [true, 1],
    ]);
  });

  it("keeps nothing of a thousand episodes, of which some never answer", async () => {
    const pool = new RolloutPool({ maxRollouts: 200 });
    const { signal } = new AbortController();
    const clock = new FakeClock();
    let numOpen = 0;
    /** Five turns, the last of which is for ever in one of ten. */
    const episode = (number: number) => {
      numOpen += 1;
      const steps = [100, 200, 300, 400].map((length) => next(length));
      const last = number % 10 === 0 ? never : done(number % 2);
      return new ScriptedEnvironment(observation(50), [...steps, last], () => {
        numOpen -= 1;
      });
    };
    const thousand = async () => {
      const groups = Array.from({ length: 125 }, (_, group) =>
        rolloutGroup(
          { makeEnvironments: () => Array.from({ length: 8 }, (_, member) => episode(8 * group + member)) },
          new ScriptedPolicy(),
          {
            pool,
            signal,
            clock,
            limits: { timeoutMs: 1000, sampleTimeoutMs: 500 },
            strategy: minViableGroup(),
          },
        ),
      );
      let isOver = false;
      const all = Promise.all(groups).finally(() => {
        isOver = true;
      });
      while (!isOver) await clock.advance(1000);
      const ends = (await all).flatMap(({ trajectories }) => trajectories.map(({ end }) => end));
      expect([ends.length, ends.filter((end) => end === "rollout_timeout").length]).toEqual([1000, 100]);
      globalThis.gc!();
      await new Promise((resolve) => setTimeout(resolve, 20));
      globalThis.gc!();
      const { heapUsed, external } = process.memoryUsage();
      return heapUsed + external;
    };
    const readings = [];
    for (let round = 0; round < 3; round += 1) readings.push(await thousand());
    expect([numOpen, clock.pending]).toEqual([0, 0]);
    // A round samples 5,000 times: what a turn left behind would be seen.
    expect(readings.at(-1)! - readings[1]!).toBeLessThan(1_000_000);
  });

  it("refuses to have no room", () => {
    expect(() => new RolloutPool({ maxRollouts: 0 })).toThrow("maxRollouts must be a whole number from 1");
  });
});

describe("strategies", () => {
  it("belong to models", () => {
    expect(rolloutDefaults("thinkingmachines/Inkling-Small:peft:131072")).toMatchObject({
      limits: { maxTurns: 10, maxTrajectoryTokens: 65_536, maxToolCalls: 30 },
      strategy: { skipsFailedGroups: true },
    });
    expect(Object.keys(rolloutDefaults("Qwen/Qwen3-8B"))).toEqual(["strategy"]);
    expect(rolloutDefaults("Qwen/Qwen3-8B").strategy.skipsFailedGroups).toBe(failFast().skipsFailedGroups);
  });

  it("refuse counts that are none", () => {
    expect(() => retryOnFailure({ maxRetries: -1 })).toThrow("maxRetries must be a whole number from 0");
    expect(() => minViableGroup({ minSuccessful: 0 })).toThrow("minSuccessful must be a whole number from 1");
    expect(() => minViableGroup({ timeoutMs: 0 })).toThrow("timeoutMs must be a number of milliseconds");
  });

  it("have their failures counted", () => {
    const counts = new FailureCounts();
    const empty: TrajectoryGroup = {
      trajectories: [],
      groupRewards: [],
      metrics: [],
      failures: [],
      tags: [],
    };
    expect(counts.metrics()).toEqual({});
    counts.add({ ...empty, failures: [{ type: "RangeError", message: "" }] });
    counts.add({
      ...empty,
      failures: [
        { type: "RangeError", message: "" },
        { type: "TypeError", message: "" },
      ],
    });
    expect(counts.metrics()).toEqual({
      "rollout_errors/RangeError": 2,
      "rollout_errors/TypeError": 1,
      "rollout_errors/total": 3,
      "rollout_errors/groups_skipped": 2,
    });
  });
});

describe("records of episodes", () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "tinkerts-rollouts-"));
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  const lines = (file: string) =>
    readFileSync(join(folder, file), "utf8")
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
  const turn = (prompt: readonly number[], tokens: readonly number[], more: Partial<Turn> = {}): Turn => ({
    observation: ModelInput.fromInts(prompt),
    action: {
      tokens: Int32Array.from(tokens),
      logprobs: Float32Array.from(tokens, (token) => -token / 10),
      stopReason: "stop",
    },
    reward: 0,
    isDone: false,
    isMasked: false,
    metrics: {},
    logs: {},
    ...more,
  });
  const groupOf = (...episodes: readonly (readonly Turn[])[]): TrajectoryGroup => ({
    trajectories: episodes.map((turns) => ({
      turns,
      finalObservation: ModelInput.empty(),
      end: "completed",
    })),
    groupRewards: episodes.map(() => 0.5),
    metrics: episodes.map(() => ({})),
    failures: [],
    tags: ["sums"],
  });

  it("have a line for each episode with all that was read, sampled and trained on", async () => {
    const group = groupOf(
      [
        turn([1, 2], [3, 4], { metrics: { odd: Number.NaN } }),
        turn([1, 2, 3, 4, 5], [6], { isMasked: true }),
        turn([9, 9], [7, 8], { reward: 1, isDone: true, logs: { said: "seven" } }),
      ],
      [turn([1, 2], [3], { isDone: true })],
    );
    const data = assembleData([group], [[2, -2]]);
    const batch = { split: "train", iteration: 7, groups: [{ group, data, samplerStep: 6 }] } as const;
    await writeRollouts(folder, batch);
    const [first, second] = lines("iteration_000007/train_rollout_summaries.jsonl");
    expect(first).toEqual({
      schema_version: 1,
      split: "train",
      iteration: 7,
      group_idx: 0,
      traj_idx: 0,
      tags: ["sums"],
      sampling_client_step: 6,
      total_reward: 1.5,
      final_reward: 0.5,
      trajectory_metrics: {},
      final_ob_len: 0,
      stop_reason: "completed",
      steps: [
        {
          ...{ step_idx: 0, ob_len: 2, ac_len: 2, reward: 0, episode_done: false, logs: {} },
          metrics: { odd: null },
          ...{ ob_tokens: [1, 2], tokens: [3, 4], logprobs: [-0.300000012, -0.400000006] },
          ...{ advantages: [2, 2], mask: [1, 1] },
        },
        {
          ...{ step_idx: 1, ob_len: 5, ac_len: 1, reward: 0, episode_done: false, logs: {} },
          metrics: {},
          ...{ ob_tokens: [5], tokens: [6], logprobs: [-0.600000024], advantages: [0], mask: [0] },
        },
        {
          ...{ step_idx: 2, ob_len: 2, ac_len: 2, reward: 1, episode_done: true, logs: { said: "seven" } },
          metrics: {},
          ...{ ob_tokens: [9, 9], tokens: [7, 8], logprobs: [-0.699999988, -0.800000012] },
          ...{ advantages: [2, 2], mask: [1, 1] },
        },
      ],
    });
    expect(second).toMatchObject({ traj_idx: 1, steps: [{ tokens: [3], advantages: [-2], mask: [1] }] });
    expect(Math.fround(first.steps[0].logprobs[0])).toBe(Math.fround(-0.3));
  });

  it("find each turn in what was trained on, also where all of a stretch is masked", async () => {
    const group = groupOf([
      turn([1, 2], [3, 4], { isMasked: true }),
      turn([1, 2], [3, 4]),
      turn([5], [], {}),
      turn([8, 8, 8], [3], { isMasked: true }),
    ]);
    const data = assembleData([group], [[1]]);
    expect(data.length).toBe(1);
    await writeRollouts(folder, { split: "train", iteration: 0, groups: [{ group, data }] });
    const [{ steps }] = lines("iteration_000000/train_rollout_summaries.jsonl");
    expect(steps.map(({ advantages }: { advantages?: number[] }) => advantages)).toEqual([
      undefined,
      [1, 1],
      undefined,
      undefined,
    ]);
  });

  it("of an evaluation have its name, and messages as Python has them", async () => {
    const group = groupOf([turn([1], [2])]);
    const messages = [
      { role: "assistant", content: "", toolCalls: [{ name: "add", arguments: "{}" }] },
      { role: "tool", content: [{ type: "thinking", thinking: "hm" } as const], toolCallId: "a" },
    ];
    const [trajectory] = group.trajectories;
    const told = { ...group, trajectories: [{ ...trajectory!, messages }] };
    await writeRollouts(folder, { split: "eval/held_out", iteration: 3, groups: [{ group: told }] });
    const [line] = lines("iteration_000003/eval_held_out_rollout_summaries.jsonl");
    const expected = [
      {
        role: "assistant",
        content: "",
        tool_calls: [{ type: "function", id: null, function: { name: "add", arguments: "{}" } }],
      },
      { role: "tool", content: [{ type: "thinking", thinking: "hm" }], tool_call_id: "a" },
    ];
    expect(line).toMatchObject({ split: "eval/held_out", sampling_client_step: null, messages: expected });
    const tree = readFileSync(join(folder, "iteration_000003/eval_held_out_logtree.json"), "utf8");
    expect(JSON.parse(tree).title).toBe("Running evaluation held_out 3");
    expect(tree).toContain(JSON.stringify({ type: "conversation", messages: expected }));
  });

  it("show only some groups as a tree, or none", async () => {
    const groups = Array.from({ length: 6 }, () => ({ group: groupOf([turn([1], [2])]) }));
    const titles = (file: string) =>
      [...readFileSync(join(folder, file), "utf8").matchAll(/"Group Rollout"/g)].length;
    await writeRollouts(folder, { split: "train", iteration: 1, groups });
    expect(titles("iteration_000001/train_logtree.json")).toBe(4);
    await writeRollouts(folder, { split: "train", iteration: 2, groups }, { numGroupsShown: 0 });
    expect(existsSync(join(folder, "iteration_000002/train_logtree.json"))).toBe(false);
    expect(lines("iteration_000002/train_rollout_summaries.jsonl").length).toBe(6);
  });

  it("are replaced as a whole, and stay outside no folder", async () => {
    const write = (size: number) => {
      const groups = Array.from({ length: size }, () => ({ group: groupOf([turn([1], [2])]) }));
      return writeRollouts(folder, { split: "train", iteration: 1, groups });
    };
    await write(3);
    await write(1);
    expect(lines("iteration_000001/train_rollout_summaries.jsonl").length).toBe(1);
    expect(readdirSync(join(folder, "iteration_000001")).length).toBe(2);
    const outside = writeRollouts(folder, { split: "eval/../../x", iteration: 1, groups: [] });
    await expect(outside).rejects.toThrow("split must be train, or eval/");
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
      const { trajectories } = await rolloutGroup(group, policy, { seed, pool });
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
