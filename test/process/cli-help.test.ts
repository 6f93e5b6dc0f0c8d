// What the command line says about itself: help for every command, and completion in a real shell.
import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { leavesOf, pathOf } from '../../src/commands/command.ts'
import { program } from '../../src/commands/program.ts'
import { aFolder, openCommandLine } from './latchkey.ts'

const run = promisify(execFile)

/** Nothing here needs a configuration. */
const commandLine = await openCommandLine(t, { DATABASE_URL: 'nonsense' })

t.test(
  'every command has help with one line, an example that it understands, and --json if it prints a result',
  async (t) => {
    for (const leaf of leavesOf(await program())) {
      const path = pathOf(leaf)
      const { code, stdout, stderr } = await commandLine.run(...path.split(' '), '--help')
      t.strictSame([code, stderr], [0, ''], path)
      t.match(stdout, /^Usage: latchkey .*\n\n\S.*/, path)
      t.equal(stdout.includes('--json'), path !== 'serve', path)
      const [, example = ''] = /Example:\n {2}latchkey (.*)\n$/.exec(stdout) ?? []
      t.ok(example.startsWith(path), path)
      for (const [option] of example.matchAll(/--[a-z-]+/g))
        t.match(stdout.split('Example:')[0], `  ${option}`)
    }
    t.match((await commandLine.run('keys')).stdout, /keys rehash-status/, 'a group alone shows its commands')
  },
)

t.test('help says what is used where an option is left out', async (t) => {
  const defaults: [words: string, text: RegExp][] = [
    ['audit list', /--limit .*\(default: 100, or 10 with --follow\)/],
    ['audit stats', /--since .*\(default: an hour before .*--limit .*\(default: 10\)/],
    ['top', /--limit .*\(default: 20\)/],
    ['keys create', /--rate-limit-rpm .*\(default: DEFAULT_RATE_LIMIT_RPM\)/],
  ]
  for (const [words, text] of defaults) {
    const { stdout } = await commandLine.run(...words.split(' '), '--help')
    t.match(stdout.replaceAll(/\s+/g, ' '), text)
  }
})

t.test('help and completion need no configuration', async (t) => {
  for (const words of [['--help'], ['--version'], ['completion', 'bash']])
    t.equal((await commandLine.run(...words)).code, 0)
})

/** Each: the words on the command line, and what the shell offers for the last one. */
const completions: [words: string[], offered: string[]][] = [
  [['us'], ['users', 'usage']],
  [['users', 're'], ['revoke-keys']],
  [['keys', 'create', '--name', 'list', '--n'], ['--name']],
  [['--v'], ['--version']],
  [['users', 'list', '--v'], []],
  [
    ['audit', 'list', '--reason', 'w'],
    ['wrong_scheme', 'wrong_prefix', 'wrong_signature', 'wrong_token'],
  ],
  [['audit', 'list', '--since', ''], []],
  [
    ['keys', 'scan', 'leaky'],
    ['leaky.log', 'leaky.txt'],
  ],
  [
    ['completion', ''],
    ['bash', 'zsh', 'fish', '--json', '--help'],
  ],
]

/** Bash splits `--option=value`. */
const valueCompletions: Record<string, typeof completions> = {
  bash: [
    [
      ['audit', 'list', '--reason', '=', 'w'],
      ['wrong_scheme', 'wrong_prefix', 'wrong_signature', 'wrong_token'],
    ],
    [
      ['top', '--sort', '='],
      ['used', 'share'],
    ],
  ],
  zsh: [
    [
      ['top', '--sort='],
      ['used', 'share'],
    ],
    [['top', '--sort=s'], ['share']],
  ],
}

/** Prints what the shell itself offers, one a line. */
const questions: Record<string, (script: string, words: string[]) => string[]> = {
  bash: (script, words) => [
    '-c',
    `${script}
    COMP_WORDS=(latchkey "$@"); COMP_CWORD=$#
    $(complete -p latchkey | sed 's/.*-F \\([^ ]*\\).*/\\1/')
    printf '%s\\n' "\${COMPREPLY[@]}"`,
    'bash',
    ...words,
  ],
  // Without a terminal, what zsh itself would do with the words found.
  zsh: (script, words) => [
    '-fc',
    `compdef() {}
    compset() { [[ $PREFIX = --*=* ]] && IPREFIX="\${PREFIX%%=*}=" && PREFIX="\${PREFIX#*=}" }
    _describe() { local all=("\${(@P)2}"); all=(\${(M)all:#$PREFIX*}); print -l -- \${all%%:*} }
    _files() { print -l -- "$PREFIX"*(N) }
    ${script}
    words=(latchkey "$@") CURRENT=$(($# + 1)) PREFIX="$@[-1]"
    _latchkey`,
    'zsh',
    ...words,
  ],
  fish: (script, words) => ['--no-config', '-c', `${script}\ncomplete -C "latchkey ${words.join(' ')}"`],
}

for (const [shell, ask] of Object.entries(questions)) {
  t.test(`${shell} completes commands, options and values`, async (t) => {
    const found = await run(shell, ['--version']).catch(() => null)
    if (found === null) return void t.pass(shell, { skip: `there is no ${shell} on this machine` })
    const { stdout: script } = await commandLine.run('completion', shell)
    const cwd = await aFolder(t)
    for (const name of ['leaky.log', 'leaky.txt']) await writeFile(join(cwd, name), '')
    for (const [words, offered] of [...completions, ...(valueCompletions[shell] ?? [])]) {
      const { stdout } = await run(shell, ask(script, words), { cwd })
      const names = stdout.split('\n').flatMap((line) => line.split('\t')[0] || [])
      const expected =
        shell === 'fish' ? offered.filter((word) => !word.startsWith('--') || words.at(-1) !== '') : offered
      t.strictSame(names.sort(), expected.sort(), words.join(' '))
    }
  })
}

t.test('zsh knows the completion, whether or not it has been set up before', async (t) => {
  const found = await run('zsh', ['--version']).catch(() => null)
  if (found === null) return void t.pass('zsh', { skip: 'there is no zsh on this machine' })
  const { stdout: script } = await commandLine.run('completion', 'zsh')
  for (const before of ['', 'autoload -Uz compinit && compinit\n']) {
    const ZDOTDIR = await aFolder(t)
    await writeFile(join(ZDOTDIR, '.zshrc'), before + script)
    const asked = await run('zsh', ['-d', '-i', '-c', 'echo $_comps[latchkey]'], {
      env: { ...process.env, ZDOTDIR },
    })
    t.match(asked, { stdout: '_latchkey\n', stderr: '' })
  }
})
