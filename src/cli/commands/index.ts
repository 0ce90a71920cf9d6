import type { CommandModule } from "../context.js";

/** One command. */
export interface CommandEntry {
  readonly name: string;
  readonly summary: string;
  /** A paragraph below the options, in its help and in the documentation. */
  readonly note?: string;
  /** Lines to copy, which its help and the documentation show. */
  readonly examples: readonly string[];
  readonly load: () => Promise<CommandModule>;
}

/** Commands that are called with two words. */
export interface CommandGroup {
  readonly name: string;
  readonly summary: string;
  readonly commands: readonly CommandEntry[];
}

/** Every command by name, in the order of `--help`; its file is loaded when the command is used. */
export const COMMANDS: readonly (CommandEntry | CommandGroup)[] = [
  {
    name: "quickstart",
    summary: "teach a small model something on this machine, in about a minute",
    examples: ["tinkerts quickstart", "tinkerts quickstart --rl"],
    load: () => import("./quickstart.js"),
  },
  {
    name: "recipe",
    summary: "run a small program that teaches a model something, and copy it",
    note: "Without a server and without an API key, the built-in backend teaches the model that comes with the package. The exit code is 1 if that has not learnt what it should. Each program is one file: --source prints it.",
    examples: [
      "tinkerts recipe",
      "tinkerts recipe addition",
      "tinkerts recipe addition --source > my-addition.ts",
      "tinkerts recipe addition --model Qwen/Qwen3-8B --steps 20 --folder runs/adder",
    ],
    load: () => import("./recipe.js"),
  },
  {
    name: "serve",
    summary: "run a Tinker server on this machine",
    examples: ["tinkerts serve", "tinkerts serve --model Qwen/Qwen3-0.6B --port 9000"],
    load: () => import("./serve.js"),
  },
  {
    name: "dashboard",
    summary: "watch runs in the browser, look at what they say, compare checkpoints",
    note: "Runs are found in the folders given and four levels below them: those of tinkerts and of the Python cookbook. The page is for this machine alone, and opens with the token in the printed address. Where a server is named or there is an API key, its checkpoints and its state are shown too; the key stays with the command.",
    examples: [
      "tinkerts dashboard",
      "tinkerts dashboard runs ~/experiments --open",
      "tinkerts dashboard --read-only",
    ],
    load: () => import("./dashboard.js"),
  },
  {
    name: "doctor",
    summary: "check that everything a program needs is there",
    examples: ["tinkerts doctor", "tinkerts doctor --base-url http://127.0.0.1:8642"],
    load: () => import("./doctor.js"),
  },
  {
    name: "models",
    summary: "list the models a server offers",
    examples: ["tinkerts models", "tinkerts models qwen --json"],
    load: () => import("./models.js"),
  },
  {
    name: "auth",
    summary: "store an API key on this machine, check it, forget it",
    commands: [
      {
        name: "login",
        summary: "store an API key, for this and for the official command line and SDKs",
        note: "The key is asked for at the terminal, where it is not shown, or read from the standard input, or taken from --api-key. It is stored once the server accepts it: in ~/.tinker/credentials.json, which only you can read. --api-key and TINKER_API_KEY go before it.",
        examples: ["tinkerts auth login", "tinkerts auth login < key.txt"],
        load: () => import("./auth-login.js"),
      },
      {
        name: "logout",
        summary: "forget the stored API key",
        note: "The key itself stays valid. Only a key that an older command line made for this machine is deleted on the server too.",
        examples: ["tinkerts auth logout"],
        load: () => import("./auth-logout.js"),
      },
      {
        name: "status",
        summary: "show which API key is used, and whether the server accepts it",
        note: "The exit code is 1 if the server cannot be reached, wants a key that is missing, or does not accept the one in use. The key itself is never shown.",
        examples: ["tinkerts auth status", "tinkerts auth status --json"],
        load: async () => (await import("./auth-status.js")).status,
      },
      {
        name: "whoami",
        summary: "the same as tinkerts whoami",
        examples: ["tinkerts auth whoami"],
        load: async () => (await import("./auth-status.js")).whoami,
      },
    ],
  },
  {
    name: "whoami",
    summary: "show who the API key belongs to",
    examples: ["tinkerts whoami"],
    load: async () => (await import("./auth-status.js")).whoami,
  },
  {
    name: "sample",
    summary: "let a model continue a text",
    note: "The model continues the prompt as it is; only a new line at the end of a file is taken off. To talk to a model, use tinkerts chat.",
    examples: [
      "tinkerts sample --base-model tinkerts/nano --prompt \"20+31=\" --temperature 0 --stop '\\n'",
      "tinkerts sample --base-model tinkerts/nano --num-samples 4 --json < prompt.txt",
    ],
    load: () => import("./sample.js"),
  },
  {
    name: "chat",
    summary: "talk to a model",
    note: "At a terminal, /help lists what else can be typed. From a pipe, each line is a message, and only the answers are printed; with --json each one is a line of JSON.",
    examples: [
      "tinkerts chat --base-model tinkerts/nano",
      "echo 'What is the capital of France?' | tinkerts chat --base-model tinkerts/nano --temperature 0",
    ],
    load: () => import("./chat.js"),
  },
  {
    name: "data",
    summary: "look at what a model is to learn from",
    commands: [
      {
        name: "check",
        summary: "check files of conversations before training on them",
        note: 'A row is {"messages": [...]} as OpenAI writes it, with tools where there are some, or {"prompt": ..., "completion": ...}. With --model the rows are written as that model reads them, and what is learnt is shown: in green, or ⟦in brackets⟧ where there are no colours. The exit code is 1 if a row cannot be trained on.',
        examples: [
          "tinkerts data check chats.jsonl",
          "tinkerts data check chats.jsonl --model Qwen/Qwen3-8B --max-length 4096",
          "tinkerts data check part-*.parquet --model tinkerts/nano --json",
        ],
        load: () => import("./data-check.js"),
      },
    ],
  },
  {
    name: "eval",
    summary: "let a model answer tasks, and say how good its answers are",
    note: 'A task is a line such as {"prompt": "What is 12 + 7?", "answer": "19"}, or has messages in place of the prompt; id is optional. A module of your own exports a function as its default, which gets { text, task } and returns true, false or a number from 0 to 1. Without a server and without an API key the built-in backend does the work.',
    examples: [
      "tinkerts eval sums.jsonl --model tinkerts/nano --grade number",
      "tinkerts eval sums.jsonl --checkpoint tinker://... --grade number --samples 8 --pass-at 4 --folder evals/final",
      "tinkerts eval letters.jsonl --model Qwen/Qwen3-8B --grade judge --judge-model Qwen/Qwen3-32B --rubric 'The tone is friendly.'",
    ],
    load: () => import("./eval.js"),
  },
  {
    name: "train",
    summary: "fine-tune a model",
    commands: [
      {
        name: "sft",
        summary: "fine-tune a model on conversations",
        note: "Ctrl-C ends the run after the step under way, with a checkpoint; the same command goes on from there. The folder holds settings, metrics and checkpoints in the files of the Python cookbook. Without a server and without a key, the built-in backend trains, and keeps its checkpoints in .tinkerts.",
        examples: [
          "tinkerts train sft chats.jsonl --model Qwen/Qwen3-8B --epochs 2",
          "tinkerts train sft chats.jsonl --model Qwen/Qwen3-8B --dry-run --price 0.4",
        ],
        load: () => import("./train-sft.js"),
      },
      {
        name: "rl",
        summary: "train a model by reward",
        note: "The default export of the file is { problems, reward } with whatever else trainReinforcement takes, or environments (a source of groups), or a function that makes them from { renderer, groupSize, seed }. It may be TypeScript (.ts, .mts). Ctrl-C ends the run after the step under way, with a checkpoint; the same command goes on from there. Of about twenty steps, the best and the worst try at a problem are shown; all of them are in the folder.",
        examples: [
          "tinkerts train rl ./my-environment.ts --model Qwen/Qwen3-8B",
          "tinkerts train rl ./sums.mjs --steps 40 --group-size 8 --max-tokens 16",
        ],
        load: () => import("./train-rl.js"),
      },
      {
        name: "dpo",
        summary: "train a model to prefer the better of two answers",
        note: 'A row is {"prompt": ..., "chosen": ..., "rejected": ...}, or {"prompt": ..., "completion_a": ..., "completion_b": ..., "label": "A"} with the label A, B or Tie; prompts and answers are texts or messages. The model is compared with what it was when the run began. Ctrl-C ends the run after the step under way, with a checkpoint; the same command goes on from there.',
        examples: [
          "tinkerts train dpo pairs.jsonl --model Qwen/Qwen3-8B",
          "tinkerts train dpo pairs.jsonl --beta 0.2 --dry-run",
        ],
        load: () => import("./train-dpo.js"),
      },
      {
        name: "distill",
        summary: "train a model to answer as another one does",
        note: "The student answers what the conversations ask, without their last answer, and learns from what the teacher thinks of each of its tokens. With --off-policy it learns the teacher's likeliest tokens in the answers that stand there. Ctrl-C ends the run after the step under way, with a checkpoint; the same command goes on from there.",
        examples: [
          "tinkerts train distill questions.jsonl --model Qwen/Qwen3-8B --teacher Qwen/Qwen3-32B --max-tokens 512",
          "tinkerts train distill chats.jsonl --model Qwen/Qwen3-8B --teacher Qwen/Qwen3-32B --off-policy --epochs 2",
        ],
        load: () => import("./train-distill.js"),
      },
    ],
  },
  {
    name: "run",
    summary: "look at training runs",
    commands: [
      {
        name: "list",
        summary: "list training runs, the latest first",
        examples: [
          "tinkerts run list --limit 5",
          "tinkerts run list --columns id,model,checkpoint --format csv",
        ],
        load: async () => (await import("./runs.js")).list,
      },
      {
        name: "info",
        summary: "show one training run",
        examples: ["tinkerts run info 0b7c1c1e-5e3f-4c5e-9a53-8d1a1f0f6a6e:train:0"],
        load: async () => (await import("./runs.js")).info,
      },
    ],
  },
  {
    name: "checkpoint",
    summary: "manage checkpoints: list, download, publish, delete, merge",
    commands: [
      {
        name: "list",
        summary: "list checkpoints, the latest first",
        examples: ["tinkerts checkpoint list", "tinkerts checkpoint list --run-id RUN --limit 0 --json"],
        load: async () => (await import("./checkpoint-show.js")).list,
      },
      {
        name: "info",
        summary: "show one checkpoint",
        examples: ["tinkerts checkpoint info tinker://RUN/weights/final"],
        load: async () => (await import("./checkpoint-show.js")).info,
      },
      {
        name: "download",
        summary: "download a checkpoint into a folder; goes on where an earlier try stopped",
        examples: ["tinkerts checkpoint download tinker://RUN/sampler_weights/final --output adapters"],
        load: () => import("./checkpoint-download.js"),
      },
      {
        name: "push-hf",
        summary: "publish a checkpoint on the Hugging Face Hub as a PEFT adapter",
        examples: ["tinkerts checkpoint push-hf tinker://RUN/sampler_weights/final --repo me/my-adapter"],
        load: () => import("./checkpoint-push-hf.js"),
      },
      {
        name: "merge",
        summary: "add an adapter to the weights of its base model",
        examples: ["tinkerts checkpoint merge tinker://RUN/sampler_weights/final --output merged"],
        load: () => import("./checkpoint-merge.js"),
      },
      {
        name: "publish",
        summary: "let everybody read a checkpoint",
        examples: ["tinkerts checkpoint publish tinker://RUN/sampler_weights/final"],
        load: async () => (await import("./checkpoint-change.js")).publish,
      },
      {
        name: "unpublish",
        summary: "keep a published checkpoint to yourself again",
        examples: ["tinkerts checkpoint unpublish tinker://RUN/sampler_weights/final"],
        load: async () => (await import("./checkpoint-change.js")).unpublish,
      },
      {
        name: "set-ttl",
        summary: "say when a checkpoint expires, or that it never does",
        examples: [
          "tinkerts checkpoint set-ttl tinker://RUN/weights/step-100 --ttl 7d",
          "tinkerts checkpoint set-ttl tinker://RUN/weights/final --remove",
        ],
        load: async () => (await import("./checkpoint-change.js")).setTtl,
      },
      {
        name: "delete",
        summary: "delete checkpoints for good, by their paths or all of a run",
        examples: [
          "tinkerts checkpoint delete tinker://RUN/weights/step-100 tinker://RUN/weights/step-200",
          "tinkerts checkpoint delete --run-id RUN --type training --before 30d",
        ],
        load: () => import("./checkpoint-delete.js"),
      },
    ],
  },
  {
    name: "session",
    summary: "look at sessions and what they did",
    commands: [
      {
        name: "list",
        summary: "list sessions, the latest first",
        examples: ["tinkerts session list --limit 5", "tinkerts session list --name experiment"],
        load: async () => (await import("./sessions.js")).list,
      },
      {
        name: "info",
        summary: "show one session",
        examples: ["tinkerts session info SESSION"],
        load: async () => (await import("./sessions.js")).info,
      },
      {
        name: "export-trace",
        summary: "download the timeline of a session, for ui.perfetto.dev",
        examples: ["tinkerts session export-trace SESSION --output trace.pftrace"],
        load: () => import("./session-export-trace.js"),
      },
    ],
  },
  {
    name: "billing",
    summary: "see what was used and what it costs",
    commands: [
      {
        name: "usage",
        summary: "show usage hour by hour",
        examples: [
          "tinkerts billing usage 2026-01-01 2026-01-08",
          "tinkerts billing usage 2026-01-01 2026-01-08 --csv usage.csv",
        ],
        load: async () => (await import("./billing.js")).usage,
      },
      {
        name: "checkpoint-storage",
        summary: "show how much checkpoints take now, and what that costs",
        examples: ["tinkerts billing checkpoint-storage"],
        load: async () => (await import("./billing.js")).checkpointStorage,
      },
    ],
  },
  {
    name: "audit",
    summary: "show who did what on a day",
    examples: ["tinkerts audit", "tinkerts audit --day 2026-01-31 --type checkpoints"],
    load: () => import("./audit.js"),
  },
  {
    name: "completion",
    summary: "print a script that completes commands in your shell",
    note: "The script completes commands, options and their values. In bash and zsh, put a line such as the first example into ~/.bashrc or ~/.zshrc, so that every new shell has it.",
    examples: [
      "source <(tinkerts completion bash)",
      "tinkerts completion fish > ~/.config/fish/completions/tinkerts.fish",
    ],
    load: () => import("./completion.js"),
  },
  {
    name: "version",
    summary: "print the version",
    examples: ["tinkerts version"],
    load: () => import("./version.js"),
  },
];
