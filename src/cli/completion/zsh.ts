// biome-ignore-all lint/suspicious/noTemplateCurlyInString: these are variables of the shell.

import { quoted } from "../../checkpoints/shell-word.js";
import {
  type DescribedCommand,
  type Expected,
  flagsWithValue,
  flagValues,
  subcommandPaths,
} from "./describe.js";

/** A zsh script: source it, or save it as `_tinkerts` in a folder of `$fpath`. */
export function zshCompletion(commands: readonly DescribedCommand[]): string {
  return [
    "#compdef tinkerts",
    "# Completion of tinkerts for zsh. In ~/.zshrc, after compinit: source <(tinkerts completion zsh)",
    "_tinkerts() {",
    "  local command_path= previous=${words[CURRENT-1]} word",
    "  local -i index",
    "  for ((index = 2; index < CURRENT; index++)); do",
    "    word=${words[index]}",
    "    case $word in",
    `      (${flagsWithValue(commands).join("|")}) ((index++)) ;;`,
    "      (*)",
    '        case "$command_path $word" in',
    `          (${subcommandPaths(commands).map(quoted).join("|")}) command_path="\${command_path:+$command_path }$word" ;;`,
    "        esac ;;",
    "    esac",
    "  done",
    "  if [[ $PREFIX == --*=* ]]; then",
    "    previous=${PREFIX%%=*}",
    "    compset -P '*='",
    "  fi",
    '  case "$command_path $previous" in',
    ...flagValues(commands).map(
      ({ patterns, value }) => `    (${patterns.join("|")}) ${offer(value)}; return ;;`,
    ),
    "  esac",
    "  local -a names flags",
    '  case "$command_path" in',
    ...commands.flatMap(({ path, commands: children, options, words }) => [
      `    (${quoted(path)})`,
      `      flags=(${options.map(described).join(" ")})`,
      ...(children.length > 0
        ? [`      names=(${children.map(described).join(" ")})`]
        : words === undefined
          ? []
          : [`      [[ $PREFIX == -* ]] || { ${offer(words)}; return }`]),
      "      ;;",
    ]),
    "  esac",
    "  if [[ $PREFIX == -* || $#names -eq 0 ]]; then _describe -t options option flags",
    "  else _describe -t commands command names",
    "  fi",
    "}",
    'if [[ $funcstack[1] == _tinkerts ]]; then _tinkerts "$@"; else compdef _tinkerts tinkerts; fi',
    "",
  ].join("\n");
}

const described = ({ name, summary }: { name: string; summary: string }) =>
  quoted(`${name.replaceAll(":", "\\:")}:${summary}`);

function offer(value: Expected): string {
  if (value === "anything") return "_message value";
  if (value === "file") return "_files";
  if (value === "folder") return "_files -/";
  return `compadd -- ${value.map(quoted).join(" ")}`;
}
