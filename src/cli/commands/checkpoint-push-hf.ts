import { pushToHub } from "../../checkpoints/push.node.js";
import { ValidationError } from "../../errors.js";
import type { CommandContext, CommandModule } from "../context.js";
import { gathered } from "../option-values.js";
import { type Column, printItem, progressBar } from "../output/index.js";
import { PATH_ARGUMENT } from "./checkpoint-common.js";
import { withCheckpointSource } from "./checkpoint-source.js";

interface PushOptions {
  readonly repo?: string;
  readonly public?: true;
  readonly revision?: string;
  readonly commitMessage?: string;
  readonly createPr?: true;
  readonly allowPattern?: readonly string[];
  readonly ignorePattern?: readonly string[];
  readonly modelCard: boolean;
}

type Pushed = Awaited<ReturnType<typeof pushToHub>> & { readonly tinkerPath: string };

const COLUMNS: readonly Column<Pushed>[] = [
  { header: "Repository", name: "repo" },
  { header: "Revision", name: "revision" },
  { header: "Address", name: "url" },
  { header: "Commit", name: "commit" },
  { header: "Pull request", name: "pullRequestUrl", none: "none" },
];

export const define: CommandModule["define"] = (command, context) => {
  const pattern = gathered((text) => text);
  command
    .argument(...PATH_ARGUMENT)
    .option("-r, --repo <name>", "repository, as owner/name (default: from base model and run)")
    .option("--public", "make the repository public, or push to one that is (default: private)")
    .option("--revision <branch>", "branch to push to; created if missing")
    .option("--commit-message <text>", "title of the commit")
    .option("--create-pr", "open a pull request instead of pushing")
    .option("--allow-pattern <pattern>", "push only matching files (repeatable)", pattern)
    .option("--ignore-pattern <pattern>", "leave out matching files (repeatable)", pattern)
    .option("--no-model-card", "do not add a README.md")
    .action(async (path: string, options: PushOptions) => {
      const pushed = await push(context, path, options);
      printItem(context, { tinkerPath: path, ...pushed }, COLUMNS);
    });
};

async function push(context: CommandContext, path: string, options: PushOptions) {
  const bar = progressBar(context, "downloading", "bytes");
  try {
    return await withCheckpointSource(context, path, (source, { fileByFile }) =>
      pushToHub(source, path, {
        repo: options.repo,
        private: options.public !== true,
        revision: options.revision,
        commitMessage: options.commitMessage,
        createPr: options.createPr === true,
        allowPatterns: options.allowPattern,
        ignorePatterns: options.ignorePattern,
        modelCard: options.modelCard,
        fileByFile,
        signal: context.interruption(),
        onProgress: ({ bytes, totalBytes }) => bar.update(bytes, totalBytes),
      }),
    );
  } catch (error) {
    if (!(error instanceof ValidationError)) throw error;
    // Without the cause, which repeats the message in the API's words.
    if (error.field === "private")
      throw new Error("the repository is public: give --public to push to it all the same");
    if (error.field === "token")
      throw new Error("a Hugging Face token is needed: set HF_TOKEN, or run `hf auth login`");
    throw error;
  } finally {
    bar.end();
  }
}
