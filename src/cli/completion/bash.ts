// biome-ignore-all lint/suspicious/noTemplateCurlyInString: these are variables of the shell.

import { quoted } from "../../checkpoints/shell-word.js";
import {
  type DescribedCommand,
  type Expected,
  flagsWithValue,
  flagValues,
  subcommandPaths,
} from "./describe.js";

/** Works with bash 3.2, which macOS has, and newer. */
export function bashCompletion(commands: readonly DescribedCommand[]): string {
  return [
    "# Completion of tinkerts for bash. In ~/.bashrc: source <(tinkerts completion bash)",
    "_tinkerts() {",
    "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} IFS=$'\\n'",
    "  # Bash makes three words of --flag=value.",
    "  if [[ $current == = ]]; then current=",
    "  elif [[ $previous == = ]]; then previous=${COMP_WORDS[COMP_CWORD-2]}",
    "  fi",
    "  local path= word index",
    "  for ((index = 1; index < COMP_CWORD; index++)); do",
    "    word=${COMP_WORDS[index]}",
    "    case $word in",
    `      ${flagsWithValue(commands).join("|")})`,
    "        [[ ${COMP_WORDS[index+1]} == = ]] && ((index++))",
    "        ((index++)) ;;",
    "      *)",
    '        case "$path $word" in',
    `          ${subcommandPaths(commands).map(quoted).join("|")}) path="\${path:+$path }$word" ;;`,
    "        esac ;;",
    "    esac",
    "  done",
    '  case "$path $previous" in',
    ...flagValues(commands).map(
      ({ patterns, value }) => `    ${patterns.join("|")}) ${offer(value)}; return ;;`,
    ),
    "  esac",
    "  local flags=",
    '  case "$path" in',
    ...commands.map(
      ({ path, options }) =>
        `    ${quoted(path)}) flags=${quoted(options.map(({ name }) => name).join(" "))} ;;`,
    ),
    "  esac",
    "  if [[ $current != -* ]]; then",
    '    case "$path" in',
    ...commands.flatMap(({ path, words }) =>
      words === undefined ? [] : [`      ${quoted(path)}) ${offer(words)}; return ;;`],
    ),
    "    esac",
    "  fi",
    `  COMPREPLY=($(compgen -W "\${flags// /$'\\n'}" -- "$current"))`,
    "}",
    "complete -F _tinkerts tinkerts",
    "",
  ].join("\n");
}

function offer(expected: Expected): string {
  if (expected === "anything") return "COMPREPLY=()";
  // Names with spaces are quoted only where the shell knows that they are file names.
  if (expected === "file") return 'compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$current"))';
  if (expected === "folder")
    return 'compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -d -- "$current"))';
  return `COMPREPLY=($(compgen -W $'${expected.join("\\n")}' -- "$current"))`;
}
