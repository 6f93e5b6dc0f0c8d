/** What may stand between the method and the version: paths, queries, and what is neither. `{key}` is one of the caller's. */
import fc from 'fast-check'
import { anyBytes } from './fuzz-bodies.ts'

const latin1 = (text: string) => Buffer.from(text).toString('latin1')

/** Mostly something with a meaning. */
const orBytes = (known: fc.Arbitrary<string>) =>
  fc.oneof({ weight: 9, arbitrary: known }, { weight: 1, arbitrary: anyBytes(3) })

const pieces = orBytes(
  fc.constantFrom(
    ...[
      '/',
      '//',
      '/.',
      '/..',
      '/./',
      '/../',
      '%2e',
      '%2E%2e',
      '%2f',
      '%5c',
      '\\',
      '/v1',
      '/keys',
      '/verify',
    ],
    ...['/docs', '/errors', '/not_found', '/{key}', '/apk_0', 'v1', 'V1', '/KEYS', '/keys/', '/openapi.json'],
    ...[
      '%',
      '%z',
      '%zz',
      '%0',
      '%00',
      '%0a',
      '%0d%0a',
      '%20',
      '%25',
      '%2525',
      '%c3',
      '%c3%28',
      '%ff',
      '%e2%82',
    ],
    ...[
      '%ed%a0%80',
      '%f0%9f%94%91',
      '%u0041',
      ';',
      ';a=b',
      ':',
      ':id',
      '*',
      '**',
      '@',
      '!',
      '~',
      '+',
      ',',
      '=',
      '&',
    ],
    ...['"', '<', '>', '|', '^', '`', '{', '}', '[', ']', "'", '$', '#', '#x', 'é', '🔑'].map(latin1),
    ...['constructor', '__proto__', 'toString', 'undefined', 'null', '-1', '0'],
    ...[200, 1000, 5000, 20_000].map((length) => 'a'.repeat(length)),
    ...['%41', '/a', '%2f'].map((piece) => piece.repeat(800)),
  ),
)

const parameters = orBytes(
  fc.constantFrom(
    ...[
      'limit=1',
      'limit=100',
      'limit=0',
      'limit=',
      'limit',
      'limit=1e1',
      'limit=%31',
      'limit=+1',
      'limit[]=1',
    ],
    ...[
      'limit[0]=1',
      'limit[a]=1',
      'limit=1,2',
      'LIMIT=1',
      'limit=99999999999999999999',
      'limit=\xff',
      'limit=%ff',
    ],
    ...['status=active', 'status=revoked', 'status=expired', 'status=', 'status=ACTIVE', 'status[]=active'],
    ...[
      'starting_after={key}',
      'starting_after=',
      'starting_after=apk_0',
      'starting_after=%00',
      'starting_after=%zz',
    ],
    ...['starting_after[]={key}', `starting_after=${'a'.repeat(3000)}`, 'starting_after=%ed%a0%80'],
    ...[
      '__proto__=1',
      '__proto__[limit]=1',
      'constructor=1',
      'constructor[prototype][x]=1',
      'toString=1',
      'length=1',
    ],
    ...['=', '=1', '&', ';', '%=1', '%zz=1', '%00=1', '%F0%9F=1', '?', '+', '%20', '#', '🔑=1', 'a.b=1'].map(
      latin1,
    ),
  ),
)
const queries = fc
  .tuple(fc.array(parameters, { minLength: 1, maxLength: 5 }), fc.constantFrom('&', '&&', ';', '?'))
  .map(([all, between]) => `?${all.join(between)}`)
/** Repeated so often that whoever collects them has something to do. */
const manyParameters = fc
  .tuple(parameters, fc.constantFrom(100, 1500))
  .map(([one, times]) => `?${`${one}&`.repeat(times)}`)

const notOrigin = fc.constantFrom(
  ...[
    '',
    '*',
    '/',
    '?',
    '#',
    'v1/keys',
    '?limit=1',
    'http://latchkey.test',
    'http://latchkey.test/v1/verify',
  ],
  ...[
    'HTTPS://x/v1/keys',
    'http:///v1/keys',
    'http://a@b:80/v1/verify?x#y',
    'http://[::1]/v1/keys',
    'ftp://x/v1/keys',
  ],
  ...[
    'http:/v1/keys',
    'latchkey.test:443',
    '//latchkey.test/v1/keys',
    'http://x?limit=1',
    'http://%zz/v1/verify',
  ],
  ...[
    '/v1/verify HTTP/1.1',
    '/v1/ver ify',
    '/v1/verify\t',
    '/v1/verify\x00',
    '/v1/\x7f',
    '/\r',
    '/v1/keys\n',
  ],
)

/** Made of the route's own target or of nothing. */
export const wildTargets = (route: string): fc.Arbitrary<string> =>
  fc.oneof(
    fc.oneof(queries, manyParameters).map((query) => route + query),
    fc
      .tuple(fc.array(pieces, { minLength: 1, maxLength: 4 }), fc.boolean())
      .map(([all, behind]) => (behind ? route + all.join('') : `/${all.join('')}`)),
    notOrigin,
  )
