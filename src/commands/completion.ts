/** latchkey completion: scripts for shells, made from the tree of commands. */
import { Argument, type Command, type Option } from 'commander'
import { command, pathOf } from './command.ts'

const shells = { bash, zsh, fish }

export const completionCommand: Command = command('completion', {
  summary: 'print the completion script for a shell',
  example:
    'completion bash >> ~/.bashrc      (zsh: >> ~/.zshrc, fish: > ~/.config/fish/completions/latchkey.fish)',
  async run({ args: [shell] }) {
    const script = shells[shell as keyof typeof shells](placesOf(rootOf(completionCommand)))
    return { json: { script }, lines: script.trimEnd().split('\n') }
  },
}).addArgument(new Argument('<shell>').choices(Object.keys(shells)))

const rootOf = (made: Command): Command => (made.parent === null ? made : rootOf(made.parent))

/** A point on the command line, and what may come next there. */
interface Place {
  /** Such as `keys list`; '' at the beginning. */
  path: string
  words: Word[]
  options: readonly Option[]
  takesFiles: boolean
}

interface Word {
  word: string
  about: string
}

const placesOf = (made: Command): Place[] => [
  {
    path: pathOf(made),
    words: [
      ...made.commands.map((one) => ({ word: one.name(), about: one.description() })),
      ...made.registeredArguments.flatMap(({ argChoices = [] }) => argChoices.map(wordOnly)),
    ],
    options: made.createHelp().visibleOptions(made),
    takesFiles: made.registeredArguments.some((argument) => argument.name() === 'file'),
  },
  ...made.commands.flatMap(placesOf),
]

const wordOnly = (word: string): Word => ({ word, about: '' })
const longOf = (option: Option) => option.long!
const takesValue = (option: Option) => option.required

/** Arms of a `case`, in bash and zsh alike. `words`: how the shell writes what may come next. */
function caseArms(places: Place[], words: (found: Word[]) => string): string {
  const values = places.flatMap(({ path, options }) =>
    options.filter(takesValue).map((option) => {
      const choices = (option.argChoices ?? []).map(wordOnly)
      return `    '${path},${longOf(option)}') ${words(choices)} ;;`
    }),
  )
  const next = places.map(({ path, words: own, options, takesFiles }) => {
    const found = [...own, ...options.map((one) => ({ word: longOf(one), about: one.description }))]
    return `    '${path},'*) ${words(found)}${takesFiles ? '; files=1' : ''} ;;`
  })
  return [...values, ...next].join('\n')
}

const knownPaths = (places: Place[]) =>
  places.flatMap(({ path }) => (path === '' ? [] : `'${path}'`)).join('|')

function bash(places: Place[]): string {
  return `# bash completion for latchkey
_latchkey() {
  local at='' word words='' files=''
  local last="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}"
  # Bash splits --option=value at its =.
  if [ "$last" = '=' ]; then last=''
  elif [ "$before" = '=' ]; then before="\${COMP_WORDS[COMP_CWORD-2]}"; fi
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "\${at:+$at }$word" in
      ${knownPaths(places)}) at="\${at:+$at }$word" ;;
    esac
  done
  case "$at,$before" in
${caseArms(places, (found) => `words='${found.map(({ word }) => word).join(' ')}'`)}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$last"))
  if [ -n "$files" ]; then
    local IFS=$'\\n'
    compopt -o filenames 2>/dev/null
    COMPREPLY+=($(compgen -f -- "$last"))
  fi
}
complete -F _latchkey latchkey
`
}

function zsh(places: Place[]): string {
  const described = ({ word, about }: Word) =>
    quoted(about === '' ? word : `${word}:${about.replaceAll(':', '\\:')}`)
  return `#compdef latchkey
_latchkey() {
  local at='' word files='' before="\${words[CURRENT-1]}"
  local -a found
  if compset -P '--*='; then before="\${IPREFIX%=}"; fi
  for word in "\${(@)words[2,CURRENT-1]}"; do
    case "\${at:+$at }$word" in
      ${knownPaths(places)}) at="\${at:+$at }$word" ;;
    esac
  done
  case "$at,$before" in
${caseArms(places, (found) => `found=(${found.map(described).join(' ')})`)}
  esac
  _describe latchkey found
  if [ -n "$files" ]; then _files; fi
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
if [ "$funcstack[1]" = _latchkey ]; then _latchkey "$@"; else compdef _latchkey latchkey; fi
`
}

function fish(places: Place[]): string {
  const lines = places.flatMap(({ path, words, options, takesFiles }) => [
    ...(takesFiles ? [`complete -c latchkey -n '__latchkey_in ${path}' -F`] : []),
    ...words.map(
      ({ word, about }) => `complete -c latchkey -n '__latchkey_is ${path}' -a ${word} -d ${quoted(about)}`,
    ),
    ...options.map((option) => {
      const value = takesValue(option) ? ` -x -a ${quoted((option.argChoices ?? []).join(' '))}` : ''
      const name = longOf(option).slice(2)
      const place = path === '' ? '__latchkey_is' : `__latchkey_in ${path}`
      return `complete -c latchkey -n '${place}' -l ${name}${value} -d ${quoted(option.description)}`
    }),
  ])
  return `# fish completion for latchkey
function __latchkey_is
  set -l words (commandline -opc)
  test "$words[2..-1]" = "$argv"
end
function __latchkey_in
  set -l words (commandline -opc)
  set -l end (math (count $argv) + 1)
  test "$words[2..$end]" = "$argv"
end
complete -c latchkey -f
${lines.join('\n')}
`
}

const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`
