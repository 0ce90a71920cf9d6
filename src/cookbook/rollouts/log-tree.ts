import type { Trajectory, TrajectoryGroup, Turn } from "../environments/index.js";
import { messageRecord, type RecordedBatch } from "./records.js";

/** An element of a log tree, in the Python cookbook's format. */
interface Node {
  readonly tag: string;
  readonly attrs: Readonly<Record<string, string>>;
  readonly children: readonly (Node | string)[];
  readonly data?: unknown;
}

const MAX_HEADER_LEVEL = 6;
const MAX_LINE_CHARACTERS = 120;

/** Writes the first groups of a batch as a readable tree, in the Python cookbook's format. */
export function logTree({ split, iteration, groups }: RecordedBatch, numGroups: number, date: Date): object {
  const title =
    split === "train"
      ? `RL Iteration ${iteration}`
      : `Running evaluation ${split.slice("eval/".length)} ${iteration}`;
  const startedAt = date.toISOString();
  const shown = groups.slice(0, numGroups);
  return {
    title,
    started_at: startedAt,
    path: null,
    root: node("body", "lt-root", [
      node("h1", "lt-title", [escaped(title)]),
      node("div", "lt-subtitle", [`Generated ${startedAt.slice(0, 19)}`]),
      paragraph(`${shown.length} of the ${groups.length} groups of this step.`),
      ...shown.map(({ group }) => groupSection(group)),
    ]),
  };
}

function groupSection({ trajectories, groupRewards }: TrajectoryGroup): Node {
  return section(2, "Group Rollout", [
    section(
      3,
      "Trajectory Details",
      trajectories.map((trajectory, place) =>
        section(4, `Trajectory ${place} Episode`, [
          ...conversation(trajectory),
          episodeDetails(trajectory, groupRewards[place]!),
        ]),
      ),
    ),
  ]);
}

function conversation({ messages }: Trajectory): readonly Node[] {
  if (messages === undefined) return [];
  const data = { type: "conversation", messages: messages.map(messageRecord) };
  return [section(5, "Conversation", [{ tag: "div", attrs: {}, children: [], data }])];
}

function episodeDetails({ turns, finalObservation }: Trajectory, groupReward: number): Node {
  const ofTurns = turns.reduce((sum, { reward }) => sum + reward, 0);
  return section(5, "Episode Details", [
    ...turns.map(turnSection),
    ...table("Episode totals", {
      num_turns: String(turns.length),
      final_ob_len: String(finalObservation.length),
      sum_step_rewards: threeDigits(ofTurns),
      final_group_reward: threeDigits(groupReward),
      total_return: threeDigits(ofTurns + groupReward),
    }),
  ]);
}

function turnSection({ observation, action, reward, metrics, logs }: Turn, index: number): Node {
  const measured = Object.entries(metrics).map(([name, value]) => [name, threeDigits(value)]);
  return section(6, `Turn ${index + 1}`, [
    ...table("Step stats", {
      ob_len: String(observation.length),
      ac_len: String(action.tokens.length),
      step_reward: threeDigits(reward),
    }),
    ...(measured.length === 0
      ? []
      : [section(7, "Step Metrics", table("Metrics emitted by env.step", Object.fromEntries(measured)))]),
    ...(Object.keys(logs).length === 0
      ? []
      : [
          section(
            7,
            "Diagnostics",
            Object.entries(logs).map(([name, value]) => logNode(name, String(value))),
          ),
        ]),
  ]);
}

function logNode(name: string, text: string): Node {
  if (!text.includes("\n") && [...text].length <= MAX_LINE_CHARACTERS) return paragraph(`${name}: ${text}`);
  const body = node("pre", "lt-details-body", [escaped(text)]);
  return node("details", "lt-details", [node("summary", undefined, [escaped(name)]), body]);
}

function section(level: number, title: string, content: readonly Node[]): Node {
  const header = `h${Math.min(level, MAX_HEADER_LEVEL)}`;
  return node("section", "lt-section", [
    node(header, `lt-${header}`, [escaped(title)]),
    node("div", "lt-section-body", content),
  ]);
}

function table(caption: string, values: Readonly<Record<string, string>>): readonly Node[] {
  const row = (tag: string, cells: readonly string[]) =>
    node(
      "tr",
      undefined,
      cells.map((cell) => node(tag, undefined, [escaped(cell)])),
    );
  const rows = Object.entries(values).map((cells) => row("td", cells));
  return [
    node("div", "lt-table-caption", [escaped(caption)]),
    node("table", "lt-table", [
      node("thead", undefined, [row("th", ["key", "value"])]),
      node("tbody", undefined, rows),
    ]),
  ];
}

const paragraph = (text: string): Node => node("p", "lt-p", [escaped(text)]);

function node(tag: string, className: string | undefined, children: readonly (Node | string)[]): Node {
  return { tag, attrs: className === undefined ? {} : { class: className }, children };
}

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#x27;",
};

const escaped = (text: string): string => text.replace(/[&<>"']/g, (character) => ENTITIES[character]!);

/** Rounds halves to even, as Python does. Only odd sixteenths are halves here. */
function threeDigits(value: number): string {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (Math.abs(value * 16) % 2 !== 1) return value.toFixed(3);
  const below = Math.floor(Math.abs(value) * 1000);
  const even = (below % 2 === 0 ? below : below + 1) / 1000;
  return (Math.sign(value) * even).toFixed(3);
}
