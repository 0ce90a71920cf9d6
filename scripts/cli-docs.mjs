// `npm run generate:cli-docs`: writes docs/cli.md from the definitions that --help shows; with --print to the standard output.
import { writeFileSync } from "node:fs";
import { COMMANDS } from "../dist/cli/commands/index.js";
import { GLOBAL_HEADING } from "../dist/cli/global-options.js";
import { createCompleteProgram } from "../dist/cli/program.js";

const INTRODUCTION = `# Command line

<!-- Made by \`npm run generate:cli-docs\` from the definitions of the commands. Change those, not this page. -->

\`npx tinkerts\` works in any folder; \`npm install --global tinkerts\` installs the \`tinkerts\` command. \`tinkerts COMMAND --help\` shows the same as
this page.

\`\`\`sh
npx tinkerts chat --model tinkerts/nano         # on the built-in backend, without a key
npx tinkerts serve                              # a server on this machine, for several programs
export TINKER_BASE_URL=http://127.0.0.1:8642    # in another terminal
npx tinkerts doctor                             # checks the set-up
\`\`\`

\`TINKER_BASE_URL\` or \`--base-url\` names a server. Without it, commands use the hosted service with the key from \`TINKER_API_KEY\` or \`tinkerts auth login\`; without a
key, \`chat\`, \`sample\`, \`train\`, \`eval\` and \`recipe\` use the built-in backend.

- Results go to standard output, everything else to standard error. With \`--json\` and \`--format csv\`, times are exact, sizes are in bytes, and names are camelCase as in the SDK.
- In a narrow terminal, an id or a path gets its own line, and columns that do not fit are named below the table.
- Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
- Errors say what to do. \`--verbose\` adds every request and where the error came from; keys are never shown.`;

const program = await createCompleteProgram({
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
});
const helper = program.createHelp();
const isGlobal = (option) => option.helpGroupHeading === GLOBAL_HEADING;
const cell = (text) => text.replaceAll("|", "\\|").replaceAll("<", "\\<");
const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;
const fullName = (command) =>
  command.parent === null ? command.name() : `${fullName(command.parent)} ${command.name()}`;
const anchor = (command) => `#${fullName(command).replaceAll(" ", "-")}`;

const table = (heading, rows) =>
  [`| ${heading} | |`, "|---|---|", ...rows.map((row) => `| ${row.join(" | ")} |`)].join("\n");
const optionRows = (options) =>
  options.map((option) => [`\`${option.flags}\``, cell(helper.optionDescription(option))]);

/** The commands that do something, which groups do not. */
function leaves(command) {
  const below = command.commands.flatMap(leaves);
  return entryOf(command)?.load === undefined && below.length > 0 ? below : [command, ...below];
}

function entryOf(command) {
  const path = fullName(command).split(" ").slice(1);
  let entry = { commands: COMMANDS };
  for (const name of path) entry = entry?.commands?.find((child) => child.name === name);
  return entry;
}

function section(command) {
  const options = helper
    .visibleOptions(command)
    .filter((option) => !isGlobal(option) && option.long !== "--help");
  const { registeredArguments } = command;
  const { note, examples } = entryOf(command);
  return [
    `## ${fullName(command)}`,
    sentence(command.description()),
    `\`\`\`\n${helper.commandUsage(command)}\n\`\`\``,
    registeredArguments.length > 0 &&
      table(
        "argument",
        registeredArguments.map((argument) => [
          `\`${argument.name()}\``,
          cell(helper.argumentDescription(argument)),
        ]),
      ),
    options.length > 0 && table("option", optionRows(options)),
    note,
    `\`\`\`sh\n${examples.join("\n")}\n\`\`\``,
  ]
    .filter(Boolean)
    .join("\n\n");
}

const all = leaves(program).filter((command) => command.name() !== "help");
const page = [
  INTRODUCTION,
  table(
    "command",
    all.map((command) => [`[${fullName(command)}](${anchor(command)})`, cell(command.description())]),
  ),
  "## Options of every command",
  "They may stand before the command or after it.",
  table("option", optionRows(helper.visibleOptions(program).filter(isGlobal))),
  ...all.map(section),
].join("\n\n");

if (process.argv.includes("--print")) process.stdout.write(`${page}\n`);
else writeFileSync(new URL("../docs/cli.md", import.meta.url), `${page}\n`);
