// What a DATABASE_URL says: where the servers are, and whether their certificates are checked.
import t from 'tap'
import { readAddress } from '../../src/postgres/address.ts'

t.test('hosts and ports are those of the URL, or of its parameters', async (t) => {
  for (const [url, ...hosts] of [
    ['postgres://db/x', ['db', 5432]],
    ['postgres://db:1/x', ['db', 1]],
    ['postgres://[::1]:1/x', ['::1', 1]],
    ['postgres://%2Frun%2Fpostgres/x', ['/run/postgres', 5432]],
    ['postgres://a,b:1/x', ['a', 1], ['b', 1]],
    ['postgres://db:1/x?host=a,[::1]&port=2', ['a', 2], ['::1', 2]],
    ['postgres://db:1/x?host=a,b&port=2,3', ['a', 2], ['b', 3]],
  ] as const) {
    const expected = hosts.map(([host, port]) => ({ host, port }))
    t.strictSame(readAddress(url, {}).hosts, expected, url)
  }
})

t.test('ssl is another name for sslmode, which takes precedence', async (t) => {
  for (const [query, isChecked] of [
    ['ssl=true', true],
    ['ssl=require', false],
    ['ssl=false', undefined],
    ['ssl=true&sslmode=require', false],
    ['ssl=false&sslmode=verify-full', true],
  ] as const) {
    const { ssl } = readAddress(`postgres://db/x?${query}`, {})
    t.equal(ssl?.options('db').rejectUnauthorized, isChecked, query)
  }
})

t.test('the server is sent none of the parameters that are read here, and all others', async (t) => {
  const own = [
    ...['ssl=require', 'sslmode=require', 'sslrootcert=', 'sslcert=', 'sslkey=', 'sslnegotiation=postgres'],
    ...['host=a', 'port=1', 'target_session_attrs=primary'],
  ]
  const { url } = readAddress(`postgres://db/x?${own.join('&')}&application_name=ada`, {})
  t.equal(url, 'postgres://db/x?application_name=ada')
})

t.test('a proxy in front of several servers learns by TLS which name is meant', async (t) => {
  const { ssl } = readAddress('postgres://db/x?sslmode=require', {})
  t.match(ssl!.options('db'), { servername: 'db' })
  t.notOk('servername' in ssl!.options('::1'), 'an address is no name')
})
