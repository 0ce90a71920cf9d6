import { describe, expect, it, vi } from "vitest";
import {
  type EnvironmentGroup,
  failFast,
  minViableGroup,
  RolloutPool,
  retryOnFailure,
  runRolloutGroup,
  type TrajectoryGroup,
  totalRewards,
} from "../../src/cookbook/index.js";
import {
  FailureCounts,
  type RolloutGroupOptions,
  rolloutDefaults,
} from "../../src/cookbook/rollouts/index.js";
import { APIConnectionError, APIUserAbortError, GoneError } from "../../src/index.js";
import { FakeClock } from "../support/fake-clock.js";
import {
  done,
  failing,
  hanging,
  never,
  next,
  observation,
  oneTurn,
  ScriptedEnvironment,
  ScriptedPolicy,
  scriptedGroup,
} from "./scripted-rollouts.js";

describe("a group", () => {
  const run = (group: EnvironmentGroup, options: RolloutGroupOptions = {}) =>
    runRolloutGroup(group, new ScriptedPolicy(), options);
  const expectAllClosed = (made: readonly (readonly ScriptedEnvironment[])[]) =>
    expect(made.flat().map(({ numClosed }) => numClosed)).toEqual(made.flat().map(() => 1));

  it("runs its episodes at once and adds its own rewards", async () => {
    const seen: (readonly unknown[])[] = [];
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
      await expect(runRolloutGroup(group, policy, { strategy: minViableGroup() })).rejects.toThrow(error);
      expect(made.length).toBe(1);
      expectAllClosed(made);
    }
  });

  it("refuses wrong settings, whatever the strategy", async () => {
    const { group, made } = scriptedGroup(1, () => oneTurn());
    const running = run(group, { limits: { maxTurns: -1 }, strategy: minViableGroup() });
    await expect(running).rejects.toThrow("limits.maxTurns must be a positive integer");
    expect(made).toEqual([]);
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

    it("gives no reward for running into a limit", async () => {
      const rewards = [{ reward: 2 }, { reward: -3, metrics: { judged: 1 } }];
      const { group } = scriptedGroup(2, cut(0.5), { groupRewards: () => rewards });
      const result = await run(group, { limits, termination: { zeroRewardOnLimit: true } });
      expect(totalRewards(result)).toEqual([0, -2.5]);
      expect(result.metrics).toEqual([{ zero_reward_on_limit: 1 }, { judged: 1 }]);
    });

    it("does not change other ends than limits", async () => {
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
      Array.from({ length: 5 }, () => runRolloutGroup(group(), new ScriptedPolicy(), { pool })),
    );
    expect(results.map(({ trajectories }) => trajectories.length)).toEqual([4, 4, 4, 4, 4]);
    expect([most, pool.running, pool.waiting]).toEqual([3, 0, 0]);
  });

  it("lets go of those that wait when their run is aborted", async () => {
    const pool = new RolloutPool({ maxRollouts: 1 });
    const controller = new AbortController();
    const { group, made } = scriptedGroup(3, hanging);
    const running = runRolloutGroup(group, new ScriptedPolicy(), { pool, signal: controller.signal });
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
        runRolloutGroup(
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
    expect(() => new RolloutPool({ maxRollouts: 0 })).toThrow("maxRollouts must be a positive integer");
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
    expect(() => retryOnFailure({ maxRetries: -1 })).toThrow("maxRetries must be a non-negative integer");
    expect(() => minViableGroup({ minSuccessful: 0 })).toThrow("minSuccessful must be a positive integer");
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
