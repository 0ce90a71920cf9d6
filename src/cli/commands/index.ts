import type { CommandModule } from "../context.js";

/** Description of one command. */
export interface CommandEntry {
  readonly name: string;
  readonly summary: string;
  /** A paragraph below the options, in the help and the documentation. */
  readonly note?: string;
  /** Lines to copy, in the help and the documentation. */
  readonly examples: readonly string[];
  readonly load: () => Promise<CommandModule>;
  /** Commands that are called with this one's name and another word. */
  readonly commands?: readonly CommandEntry[];
}

/** Commands that consist of two words. */
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
    summary: "run or copy a small program that teaches a model something",
    note: "Without a server and an API key, it trains the package's own model on the built-in backend; the exit code is 1 if the model does not reach the recipe's goal. Each program is one file: --source prints it.",
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
    name: "gateway",
    summary: "serve OpenAI's and Anthropic's APIs to agents, and record their samples",
    note: "An agent needs only the printed addresses. `/s/NAME/v1` and `/s/NAME/anthropic` give each episode a session of its own; other requests are grouped by their conversation. Without --base-url and an API key, the built-in backend answers. With --upstream, another service answers, with the key that the agent sends or that of TINKERTS_UPSTREAM_API_KEY, and conversations are recorded for `train sft`; keys are not.",
    examples: [
      "tinkerts gateway --model Qwen/Qwen3-8B",
      "tinkerts gateway --model runs/adder --port 9000",
      "tinkerts gateway --model big=Qwen/Qwen3-8B --model small=runs/tiny --map 'claude-haiku-*=small'",
      "tinkerts gateway --upstream https://api.openai.com/v1 --record runs/app",
    ],
    load: () => import("./gateway.js"),
    commands: [
      {
        name: "sessions",
        summary: "list the sessions that a gateway has recorded",
        note: "A gateway records with --record FOLDER. Filters can be combined.",
        examples: [
          "tinkerts gateway sessions runs/agents",
          "tinkerts gateway sessions runs/agents --min-reward 0.5 --since 7d --tag sums",
        ],
        load: () => import("./gateway-sessions.js"),
      },
      {
        name: "show",
        summary: "print a recorded session: its conversations, and where and why they forked",
        note: "With --json also the tokens and their logprobs.",
        examples: ["tinkerts gateway show runs/agents episode-7"],
        load: () => import("./gateway-show.js"),
      },
      {
        name: "export",
        summary: "write recorded sessions as conversations or datums, one a line",
        note: "`tinkerts train sft` and `tinkerts data check` read the conversations. Each answer is trained in one row; others, and answers that were cut off, have weight 0. In a row of --as datums, `datum` is what `forwardBackward` takes: the sampled tokens, their logprobs, and weights that are 1 where the model spoke.",
        examples: [
          "tinkerts gateway export runs/agents --min-reward 1 -o good.jsonl",
          "tinkerts gateway export runs/agents --as datums -o datums.jsonl",
        ],
        load: () => import("./gateway-export.js"),
      },
    ],
  },
  {
    name: "dashboard",
    summary: "watch runs in the browser, read samples, compare checkpoints",
    note: "Finds runs of tinkerts and of the Python cookbook in the given folders and up to four levels below. Only this machine can open the page, with the token in the printed address. With --base-url or an API key it also shows the server's checkpoints and state; the key is not sent to the page.",
    examples: [
      "tinkerts dashboard",
      "tinkerts dashboard runs ~/experiments --open",
      "tinkerts dashboard --read-only",
    ],
    load: () => import("./dashboard.js"),
  },
  {
    name: "export",
    summary: "write a model for llama.cpp, Ollama, vLLM or transformers",
    note: "Without an adapter, the base model alone is written. Memory stays under 2 GB whatever the model's size. The result appears when it is complete; after Ctrl-C or a crash, the same command continues. --check needs `npm install node-llama-cpp`.",
    examples: [
      "tinkerts export tinker://RUN/sampler_weights/final --to gguf --type q4_K_M",
      "tinkerts export runs/adder --to ollama --output adder --check",
      "tinkerts export adapters/final --to llama.cpp-lora --base models/Qwen3-8B",
      "tinkerts export Qwen/Qwen3-0.6B --to gguf --output qwen.gguf",
    ],
    load: () => import("./export.js"),
  },
  {
    name: "doctor",
    summary: "check the set-up: server, key, models, GPU",
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
    summary: "store, check and remove an API key on this machine",
    commands: [
      {
        name: "login",
        summary: "store an API key for the hosted service or, with --base-url, for another server",
        note: "Asks for the key at the terminal (it is not shown), or reads it from standard input or --api-key. If the server accepts the key, it is stored in ~/.tinker/credentials.json, which only you can read. A stored key is sent only to its own server; the official command line and SDKs also use the hosted service's key. --api-key and TINKER_API_KEY take precedence.",
        examples: [
          "tinkerts auth login",
          "tinkerts auth login < key.txt",
          "tinkerts auth login --base-url https://tinker.example",
        ],
        load: () => import("./auth-login.js"),
      },
      {
        name: "logout",
        summary: "remove the API key stored for a server",
        note: "The key itself stays valid. Only a key that an older command line made for this machine is deleted on the server too.",
        examples: ["tinkerts auth logout", "tinkerts auth logout --base-url https://tinker.example"],
        load: () => import("./auth-logout.js"),
      },
      {
        name: "status",
        summary: "show which API key is used, and whether the server accepts it",
        note: "The exit code is 1 if the server cannot be reached, needs a key and none is set, or rejects the key. The key itself is never shown.",
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
    name: "tokens",
    summary: "manage the tokens that a server of your own issues for your key",
    commands: [
      {
        name: "revoke",
        summary: "end all tokens that were issued for your API key",
        note: "For servers started with `tinkerts serve --tokens`. Clients with the key get a new token; clients with only a token lose access at once. The key stays valid.",
        examples: ["tinkerts tokens revoke --base-url http://127.0.0.1:8642"],
        load: () => import("./tokens-revoke.js"),
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
    summary: "continue a text with a model",
    note: "The model continues the prompt as it is; only a line break at the end of a file is removed. To talk to a model, use tinkerts chat.",
    examples: [
      "tinkerts sample --model tinkerts/nano --prompt \"20+31=\" --temperature 0 --stop '\\n'",
      "tinkerts sample --model tinkerts/nano --num-samples 4 --json < prompt.txt",
    ],
    load: () => import("./sample.js"),
  },
  {
    name: "chat",
    summary: "talk to a model",
    note: "At a terminal, /help lists the commands. From a pipe, each line is a message and only the answers are printed, with --json as one line of JSON each.",
    examples: [
      "tinkerts chat --model tinkerts/nano",
      "echo 'What is the capital of France?' | tinkerts chat --model tinkerts/nano --temperature 0",
    ],
    load: () => import("./chat.js"),
  },
  {
    name: "data",
    summary: "inspect and check training data",
    commands: [
      {
        name: "check",
        summary: "check files of conversations before training on them",
        note: 'A row is {"messages": [...]} as OpenAI writes it, a conversation of ShareGPT, Alpaca\'s {"instruction": ..., "output": ...}, or {"prompt": ..., "completion": ...}; --data-format and --columns decide where that is not recognized. With --model the rows are shown as that model reads them, with the trained tokens in green, or ⟦in brackets⟧ without colours. The exit code is 1 if a row cannot be trained on.',
        examples: [
          "tinkerts data check chats.jsonl",
          "tinkerts data check chats.jsonl --model Qwen/Qwen3-8B --max-length 4096",
          "tinkerts data check part-*.parquet --model tinkerts/nano --json",
          "tinkerts data check table.csv --columns prompt=question,completion=reply --test-file held-out.csv",
          "tinkerts data check hf:openai/gsm8k/main:train --model Qwen/Qwen3-8B",
        ],
        load: () => import("./data-check.js"),
      },
    ],
  },
  {
    name: "eval",
    summary: "evaluate a model on tasks",
    note: 'A task is a line such as {"prompt": "What is 12 + 7?", "answer": "19"}, or with messages instead of the prompt; id is optional. Your own grader is a module whose default export is a function that gets { text, task } and returns true, false or a number from 0 to 1. Without a server and an API key, the built-in backend runs the model.',
    examples: [
      "tinkerts eval sums.jsonl --model tinkerts/nano --grade number",
      "tinkerts eval sums.jsonl --model tinker://... --grade number --samples 8 --pass-at 4 --folder evals/final",
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
        note: "Ctrl-C stops after the current step and saves a checkpoint; the same command resumes the run. The folder holds settings, metrics and checkpoints in the files of the Python cookbook. Without a server and an API key, the built-in backend trains and keeps its checkpoints in .tinkerts.",
        examples: [
          "tinkerts train sft chats.jsonl --model Qwen/Qwen3-8B --epochs 2",
          "tinkerts train sft chats.jsonl=3 table.csv=1 --model Qwen/Qwen3-8B",
          "tinkerts train sft chats.jsonl --model Qwen/Qwen3-8B --dry-run",
          "tinkerts train sft chats.jsonl --model Qwen/Qwen3-8B --budget 5",
        ],
        load: async () => (await import("./train-rows.js")).sft,
      },
      {
        name: "rl",
        summary: "train a model with rewards (reinforcement learning)",
        note: "The default export of the file is { problems, reward } and other options of trainReinforcement, or environments (a source of groups), or a function that makes them from { renderer, groupSize, seed }. It may be TypeScript (.ts, .mts). Ctrl-C stops after the current step and saves a checkpoint; the same command resumes the run. For about twenty steps of the run, the best and the worst answer to a problem are printed; the folder has all of them.",
        examples: [
          "tinkerts train rl ./my-environment.ts --model Qwen/Qwen3-8B",
          "tinkerts train rl ./sums.mjs --steps 40 --group-size 8 --max-tokens 16",
        ],
        load: () => import("./train-rl.js"),
      },
      {
        name: "dpo",
        summary: "train a model to prefer the better of two answers",
        note: 'A row is {"prompt": ..., "chosen": ..., "rejected": ...}, or {"prompt": ..., "completion_a": ..., "completion_b": ..., "label": "A"} with the label A, B or Tie; prompts and answers are texts or messages. The reference is the model at the start of the run. Ctrl-C stops after the current step and saves a checkpoint; the same command resumes the run.',
        examples: [
          "tinkerts train dpo pairs.jsonl --model Qwen/Qwen3-8B",
          "tinkerts train dpo pairs.jsonl --beta 0.2 --dry-run",
        ],
        load: async () => (await import("./train-rows.js")).dpo,
      },
      {
        name: "distill",
        summary: "train a model to answer like another one",
        note: "The student answers the conversations without their last answer, and is trained on the teacher's logprob of each of its tokens. With --off-policy it is trained on the teacher's likeliest tokens in the answers of the file. Ctrl-C stops after the current step and saves a checkpoint; the same command resumes the run.",
        examples: [
          "tinkerts train distill questions.jsonl --model Qwen/Qwen3-8B --teacher Qwen/Qwen3-32B --max-tokens 512",
          "tinkerts train distill chats.jsonl --model Qwen/Qwen3-8B --teacher Qwen/Qwen3-32B --off-policy --epochs 2",
        ],
        load: () => import("./train-distill.js"),
      },
    ],
  },
  {
    name: "sweep",
    summary: "train with several settings and compare the runs",
    note: "A plan is YAML, JSON, or the default export of a program: { train: sft, files: [chats.jsonl], model: tinkerts/nano, options: { epochs: 2 }, grid: { learningRate: [1e-3, 2e-3] }, metric: test/nll }. `train` is sft, dpo, rl or distill; `grid` tries every combination of its values, `list` the settings that it names, under the option names of the cookbook. Each run has a folder beside sweep.json. Ctrl-C pauses the runs with a checkpoint; the same command resumes them, and tries failed ones again.",
    examples: [
      "tinkerts sweep plan.yaml",
      "tinkerts sweep plan.yaml --at-once 4 --metric test/nll --json",
      "tinkerts sweep plan.ts --dry-run",
    ],
    load: () => import("./sweep.js"),
  },
  {
    name: "run",
    summary: "list and show training runs",
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
    summary: "manage checkpoints: list, download, publish, delete, merge, import",
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
        summary: "download a checkpoint into a folder; resumes an interrupted download",
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
        name: "import",
        summary: "make a checkpoint of a PEFT adapter that another program trained",
        note: "The built-in backend can sample from it and train on it. Other ranks, alphas and sets of modules become the ones of the backend without a change to what the model computes; DoRA and modules that were saved whole are refused. Without `tinkerts serve` the folder .tinkerts is written directly, and if the server runs there, it takes the adapter in.",
        examples: [
          "tinkerts checkpoint import my-adapter",
          "tinkerts checkpoint import my-adapter --base Qwen/Qwen3-0.6B --name from-peft",
        ],
        load: () => import("./checkpoint-import.js"),
      },
      {
        name: "publish",
        summary: "make a checkpoint public",
        examples: ["tinkerts checkpoint publish tinker://RUN/sampler_weights/final"],
        load: async () => (await import("./checkpoint-change.js")).publish,
      },
      {
        name: "unpublish",
        summary: "make a published checkpoint private again",
        examples: ["tinkerts checkpoint unpublish tinker://RUN/sampler_weights/final"],
        load: async () => (await import("./checkpoint-change.js")).unpublish,
      },
      {
        name: "set-ttl",
        summary: "set when a checkpoint expires, or that it never does",
        examples: [
          "tinkerts checkpoint set-ttl tinker://RUN/weights/step-100 --ttl 7d",
          "tinkerts checkpoint set-ttl tinker://RUN/weights/final --remove",
        ],
        load: async () => (await import("./checkpoint-change.js")).setTtl,
      },
      {
        name: "delete",
        summary: "delete checkpoints permanently, by path or all of a run",
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
    summary: "list sessions and export their timelines",
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
    summary: "show usage and cost",
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
        summary: "show the current size and cost of checkpoints",
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
    note: "The script completes commands, options and their values. In bash and zsh, add a line like the first example to ~/.bashrc or ~/.zshrc.",
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
