import { type DescribedCommand, type Expected, flagsWithValue, subcommandPaths } from "./describe.js";

export function fishCompletion(commands: readonly DescribedCommand[]): string {
  return [
    "# Completion of tinkerts for fish. Save it: tinkerts completion fish > ~/.config/fish/completions/tinkerts.fish",
    "function __tinkerts_at --description 'Whether this command of tinkerts is being typed'",
    "  set -l words (commandline -opc)",
    "  set -e words[1]",
    "  set -l path",
    "  set -l is_value 0",
    "  for word in $words",
    "    if test $is_value = 1",
    "      set is_value 0",
    `    else if contains -- $word ${flagsWithValue(commands).join(" ")}`,
    "      set is_value 1",
    `    else if contains -- "$path $word" ${subcommandPaths(commands).map(quoted).join(" ")}`,
    "      set path $path $word",
    "    end",
    "  end",
    '  test "$path" = "$argv"',
    "end",
    "complete -c tinkerts -e",
    "complete -c tinkerts -f",
    ...commands.flatMap(({ path, commands: children, options, words }) => {
      const here = `complete -c tinkerts -n ${quoted(`__tinkerts_at ${path}`.trim())}`;
      return [
        ...children.map(({ name, summary }) => `${here} -a ${name} -d ${quoted(summary)}`),
        ...(children.length > 0 || words === undefined ? [] : [`${here} ${offer(words)}`]),
        ...options.map(({ name, short, summary, value }) =>
          [
            ...[here, "-l", name.replace(/^--/, "")],
            ...(short === undefined ? [] : ["-s", short.slice(1)]),
            ...(value === undefined ? [] : ["-r", offer(value)]),
            ...["-d", quoted(summary)],
          ].join(" "),
        ),
      ];
    }),
    "",
  ].join("\n");
}

function offer(expected: Expected): string {
  // `-f`: fish would offer file names after -r.
  if (expected === "anything") return "-f";
  if (expected === "file") return "-F";
  if (expected === "folder") return "-f -a '(__fish_complete_directories)'";
  return `-f -a ${quoted(expected.join(" "))}`;
}

/** In fish quotes, a backslash escapes a quote. */
function quoted(text: string): string {
  return `'${text.replaceAll(/['\\]/g, "\\$&")}'`;
}
